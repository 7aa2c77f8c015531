//! Opening of the devices that a choice names.

use std::sync::Arc;

use super::DeviceChoice;
use crate::device::Device;
use crate::device::cuda::{self, CudaDevice};
use crate::device::emulated::EmulatedDevice;
use crate::error::{GpuError, Result};

/// The devices of a choice, in their order; none for the CPU.
pub(super) fn open_devices(choice: DeviceChoice) -> Result<Vec<Arc<dyn Device>>> {
    let one = |device: Arc<dyn Device>| Ok(vec![device]);
    match choice {
        DeviceChoice::Cpu => Ok(vec![]),
        DeviceChoice::Emulator => one(Arc::new(EmulatedDevice::open()?)),
        DeviceChoice::Emulators(count) => {
            let numbered = |number| Ok(Arc::new(EmulatedDevice::numbered(number)?) as _);
            (0..count).map(numbered).collect()
        }
        DeviceChoice::Cuda(Some(index)) => one(Arc::new(CudaDevice::open(index)?)),
        DeviceChoice::Cuda(None) => one(Arc::new(first_usable_gpu()?)),
        DeviceChoice::Gpus(set) => {
            let open = |index| Ok(Arc::new(CudaDevice::open(index)?) as _);
            set.iter().map(open).collect()
        }
        DeviceChoice::AllGpus => {
            let gpus = usable_gpus(usize::MAX)?;
            Ok(gpus.into_iter().map(|gpu| Arc::new(gpu) as _).collect())
        }
        DeviceChoice::Auto => match cuda::count() {
            Err(error) => {
                log::info!("queries run on the CPU: {error}");
                Ok(vec![])
            }
            Ok(_) => match first_usable_gpu() {
                Ok(device) => one(Arc::new(device)),
                Err(error) => {
                    log::warn!("queries run on the CPU: {error}");
                    Ok(vec![])
                }
            },
        },
    }
}

/// The first GPU that opens, or why the first did not.
fn first_usable_gpu() -> Result<CudaDevice> {
    let mut gpus = usable_gpus(1)?;
    gpus.pop().ok_or_else(no_gpu)
}

/// The first GPUs that open, `most` of them at most, or why the first did not.
fn usable_gpus(most: usize) -> Result<Vec<CudaDevice>> {
    let mut first_error = None;
    let mut gpus = Vec::new();
    for index in 0..cuda::count()? {
        if gpus.len() == most {
            break;
        }
        match CudaDevice::open(index) {
            Ok(device) => gpus.push(device),
            Err(error) => {
                if most > 1 {
                    log::warn!("cuda:{index} is left out: {error}");
                }
                first_error.get_or_insert(error);
            }
        }
    }
    match gpus.is_empty() {
        true => Err(first_error.unwrap_or_else(no_gpu)),
        false => Ok(gpus),
    }
}

fn no_gpu() -> GpuError {
    GpuError::DeviceUnavailable {
        requested: "cuda".into(),
        cause: "the driver shows no GPU".into(),
        remedy: "check `nvidia-smi`".into(),
    }
}
