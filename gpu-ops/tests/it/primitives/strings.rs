//! Strings of chosen rows.

use warpline_gpu::GpuError;
use warpline_gpu::device::DevicePtr;
use warpline_gpu::primitives::{RowCount, StringRows, gather_strings};

use super::{Machine, Numbers, machines};

/// A column of strings of `length(row)` bytes each.
fn column(rows: usize, length: impl Fn(usize) -> usize) -> (Vec<u64>, Vec<u8>) {
    let (mut offsets, mut data) = (vec![0], Vec::new());
    for row in 0..rows {
        data.extend((0..length(row)).map(|i| (row * 31 + i * 7) as u8));
        offsets.push(data.len() as u64);
    }
    (offsets, data)
}

fn check(
    machine: &Machine,
    (offsets, data): &(Vec<u64>, Vec<u8>),
    ids: &[u64],
    valid: Option<&[u8]>,
    rows: RowCount,
    used: usize,
) {
    let string = |i: usize| -> &[u8] {
        if i >= used || valid.is_some_and(|v| v[i] == 0) {
            return &[];
        }
        let row = ids[i] as usize;
        &data[offsets[row] as usize..offsets[row + 1] as usize]
    };
    let (mut wanted_offsets, mut wanted) = (vec![0u64], Vec::new());
    for i in 0..rows.most() as usize {
        wanted.extend_from_slice(string(i));
        wanted_offsets.push(wanted.len() as u64);
    }
    let (offsets, data) = (machine.upload(offsets), machine.upload(data));
    let short: Vec<u32> = ids.iter().map(|id| *id as u32).collect();
    let validity = valid.map(|v| machine.upload(v));
    for (ids, width) in [(machine.upload(ids), 8), (machine.upload(&short), 4)] {
        let (found_offsets, found) = unsafe {
            let strings = StringRows {
                offsets: offsets.ptr(),
                data: data.ptr(),
                row_ids: ids.ptr(),
                id_width: width,
                valid: validity.as_ref().map(|v| v.ptr()),
                rows,
            };
            gather_strings(&machine.runtime, &machine.stream, &strings).unwrap()
        };
        let label = format!("{}: {used} strings", machine.name);
        assert_eq!(found.len(), wanted.len(), "{label}");
        assert!(machine.read::<u64>(&found_offsets, wanted_offsets.len()) == wanted_offsets);
        assert!(
            machine.read::<u8>(&found, wanted.len()) == wanted,
            "{label}"
        );
    }
}

#[test]
fn strings_of_every_length() {
    for machine in machines() {
        let mut numbers = Numbers(1);
        let empty = column(50, |_| 0);
        let short = column(200, |row| row % 4);
        let mixed = column(300, |row| row % 41);
        let long = column(20, |row| 200 + row * 13);
        let skewed = column(60, |row| if row == 17 { 5000 } else { row % 3 });
        for column in [empty, short, mixed, long, skewed] {
            let rows = column.0.len() as u64 - 1;
            for n in [0usize, 1, 31, 33, 700] {
                let ids: Vec<u64> = (0..n).map(|_| numbers.draw() % rows).collect();
                check(&machine, &column, &ids, None, RowCount::Known(n as u64), n);
            }
        }
    }
}

#[test]
fn nulls_are_empty_and_not_looked_at() {
    for machine in machines() {
        let column = column(100, |row| 1 + row % 20);
        let valid: Vec<u8> = (0..300).map(|i| u8::from(i % 3 != 0)).collect();
        let ids: Vec<u64> = (0..300)
            .map(|i| if i % 3 == 0 { 1 << 60 } else { i % 100 })
            .collect();
        check(
            &machine,
            &column,
            &ids,
            Some(&valid),
            RowCount::Known(300),
            300,
        );
        let none = vec![0; 300];
        check(
            &machine,
            &column,
            &ids,
            Some(&none),
            RowCount::Known(300),
            300,
        );
    }
}

#[test]
fn the_device_knows_the_number_of_strings() {
    for machine in machines() {
        let column = column(100, |row| row % 20);
        let ids: Vec<u64> = (0..500).map(|i| i * 7 % 100).collect();
        for rows in [0, 1, 250, 600] {
            let ([_, device], _count) = machine.row_counts(rows, 500);
            check(
                &machine,
                &column,
                &ids,
                None,
                device,
                rows.min(500) as usize,
            );
        }
    }
}

#[test]
fn row_numbers_of_other_widths_are_refused() {
    let machine = &machines()[0];
    let null = DevicePtr::NULL;
    let strings = StringRows {
        offsets: null,
        data: null,
        row_ids: null,
        id_width: 2,
        valid: None,
        rows: RowCount::Known(1),
    };
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    let result = unsafe { gather_strings(runtime, stream, &strings) };
    assert!(matches!(result, Err(GpuError::Internal(_))));
}
