//! Calibrated constants on disk: one JSON file for each kind of device, `calibration/<name>.json` in Warpline's cache
//! folder.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{Curve, Machine, Origin};
use crate::device::DeviceInfo;
use crate::device::cubin_cache::cache_directory;
use crate::error::{GpuError, Result};

/// Of the file's form; another number means constants of another meaning.
const VERSION: u64 = 1;

/// The file for a device's constants; `None` when nothing is cached on disk.
pub fn stored_at(device: &DeviceInfo) -> Option<PathBuf> {
    let name: String = device
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    Some(cache_directory("calibration")?.join(format!("{name}.json")))
}

/// What has been measured on devices of this name; `None` when nothing was, when the file is damaged or of
/// another version (logged), and for the emulator, whose times mean nothing.
pub fn load(device: &DeviceInfo) -> Option<Machine> {
    if device.emulated {
        return None;
    }
    let path = stored_at(device)?;
    let text = std::fs::read_to_string(&path).ok()?;
    let machine = parse(&text);
    if machine.is_none() {
        log::warn!(
            "{} is damaged or of another version; `warpline calibrate` writes it anew",
            path.display()
        );
    }
    machine
}

/// Keep `machine` for later sessions; the path of the file.
///
/// # Errors
/// [`GpuError::InvalidSetting`] when nothing is cached on disk or the folder cannot be written.
pub fn save(machine: &Machine, device: &DeviceInfo) -> Result<PathBuf> {
    let refused = |value: String, expected: String| GpuError::InvalidSetting {
        setting: crate::device::cubin_cache::CACHE_VARIABLE.into(),
        value,
        expected,
    };
    let path = stored_at(device).ok_or_else(|| {
        refused(
            String::new(),
            "a writable folder, to keep the measured constants".into(),
        )
    })?;
    write(&path, &text(machine)).map_err(|error| {
        refused(
            path.display().to_string(),
            format!("a writable folder ({error})"),
        )
    })?;
    Ok(path)
}

/// Under another name first: a reader sees a whole file or none.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The numbers of a machine by name.
macro_rules! numbers {
    ($each:ident) => {
        $each!(
            memory,
            l2,
            shared,
            multiprocessors,
            copy,
            read,
            link,
            launch,
            partition_row,
            partition_column,
            partition_copy,
            match_row,
            match_pair,
            merge_row,
            group_row,
            run_row,
            register_update
        )
    };
}

/// The constants as JSON.
pub(super) fn text(machine: &Machine) -> String {
    let curve = |curve: &Curve| -> Value {
        curve
            .points()
            .iter()
            .map(|(bytes, cost)| json!([bytes, cost]))
            .collect()
    };
    let mut object = Map::new();
    object.insert("version".into(), json!(VERSION));
    object.insert("device".into(), json!(machine.device));
    macro_rules! put {
        ($($name:ident),*) => {
            $(object.insert(stringify!($name).into(), json!(machine.$name));)*
        };
    }
    numbers!(put);
    for (name, curves) in [("gather", &machine.gather), ("scatter", &machine.scatter)] {
        object.insert(name.into(), curves.iter().map(curve).collect());
    }
    object.insert("atomics".into(), curve(&machine.atomics));
    object.insert("inserts".into(), curve(&machine.inserts));
    object.insert("shared_atomics".into(), curve(&machine.shared_atomics));
    object.insert(
        "shared_wide_atomics".into(),
        curve(&machine.shared_wide_atomics),
    );
    format!("{:#}\n", Value::Object(object))
}

/// The constants from JSON; `None` unless all are there and positive.
pub(super) fn parse(text: &str) -> Option<Machine> {
    let value: Value = serde_json::from_str(text).ok()?;
    if value.get("version")?.as_u64()? != VERSION {
        return None;
    }
    let curve = |value: &Value| -> Option<Curve> {
        let points: Option<Vec<(f64, f64)>> = value
            .as_array()?
            .iter()
            .map(|point| {
                let (bytes, cost) = (point.get(0)?.as_f64()?, point.get(1)?.as_f64()?);
                (bytes > 0.0 && cost >= 0.0).then_some((bytes, cost))
            })
            .collect();
        points.filter(|p| !p.is_empty()).map(Curve::new)
    };
    let three = |name: &str| -> Option<[Curve; 3]> {
        let curves = value.get(name)?;
        Some([
            curve(curves.get(0)?)?,
            curve(curves.get(1)?)?,
            curve(curves.get(2)?)?,
        ])
    };
    let mut machine = Machine {
        device: value.get("device")?.as_str()?.to_string(),
        origin: Origin::Measured,
        gather: three("gather")?,
        scatter: three("scatter")?,
        atomics: curve(value.get("atomics")?)?,
        inserts: curve(value.get("inserts")?)?,
        shared_atomics: curve(value.get("shared_atomics")?)?,
        shared_wide_atomics: curve(value.get("shared_wide_atomics")?)?,
        ..Machine::h200()
    };
    macro_rules! take {
        ($($name:ident),*) => {
            $(
                machine.$name = value.get(stringify!($name))?.as_f64()?;
                if !machine.$name.is_finite() || machine.$name < 0.0 {
                    return None;
                }
            )*
        };
    }
    numbers!(take);
    (machine.copy > 0.0 && machine.read > 0.0 && machine.partition_copy > 0.0).then_some(machine)
}
