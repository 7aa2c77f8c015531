//! Radix partitions in any order: the rows of each partition as a set, and where partitions begin.

use warpline_gpu::primitives::{Keys, Partitioning, Payload, RowCount, radix_partition_unstable};

use super::partition::{Case, Column, columns, digit, keys_out, pack};
use super::{Machine, assert_untouched};

/// What `radix_partition_unstable` makes of a case that keeps its keys.
pub(super) fn check(machine: &Machine, case: &Case<'_>, count: RowCount) {
    let rows = case.keys.len();
    let label = format!(
        "{}, unordered: {rows} keys of {} bytes, payloads {:?}, {:?} {:?}",
        machine.name, case.width, case.payloads, case.digits, case.bits
    );
    let key_bytes = pack(case.keys, case.width);
    let source = machine.upload(&key_bytes);
    let target = machine.space(key_bytes.len());
    let columns = columns(machine, case, 78);
    let payloads: Vec<Payload> = columns.iter().map(Column::payload).collect();
    let partitions = 1usize << case.bits.len();
    let offsets = machine.space((partitions + 1) * 4);
    let of = Partitioning {
        keys: Keys {
            ptr: source.ptr(),
            width: case.width,
        },
        to: target.ptr(),
        payloads: &payloads,
        rows: count,
        digits: case.digits,
        bits: case.bits.clone(),
    };
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    unsafe { radix_partition_unstable(runtime, stream, &of, Some(offsets.ptr())) }.unwrap();

    // Rows as bytes, one column behind the other.
    let whole = |sources: &[(&[u8], u32)]| -> Vec<Vec<u8>> {
        let row = |at: usize| {
            let cells = sources.iter().flat_map(|(bytes, width)| {
                let width = *width as usize;
                bytes[at * width..(at + 1) * width].to_vec()
            });
            cells.collect()
        };
        (0..rows).map(row).collect()
    };
    let keys_out = keys_out(case);
    let mut sources: Vec<(&[u8], u32)> = vec![(&keys_out, case.width)];
    sources.extend(columns.iter().map(|c| (c.bytes.as_slice(), c.width)));
    let mut expected: Vec<(u128, Vec<u8>)> = whole(&sources)
        .into_iter()
        .enumerate()
        .map(|(row, cells)| (digit(case, case.keys[row]), cells))
        .collect();
    expected.sort();

    let got_keys: Vec<u8> = machine.read(&target, key_bytes.len());
    let got_columns: Vec<Vec<u8>> = columns
        .iter()
        .map(|c| machine.read(&c.to, c.bytes.len()))
        .collect();
    let mut results: Vec<(&[u8], u32)> = vec![(&got_keys, case.width)];
    let widths = columns.iter().map(|c| c.width);
    results.extend(got_columns.iter().map(Vec::as_slice).zip(widths));
    let first_places: Vec<u32> = machine.read(&offsets, partitions + 1);
    let want: Vec<u32> = (0..=partitions as u128)
        .map(|p| expected.partition_point(|(partition, _)| *partition < p) as u32)
        .collect();
    assert!(first_places == want, "{label}: offsets");
    let mut got: Vec<(u128, Vec<u8>)> = whole(&results)
        .into_iter()
        .enumerate()
        .map(|(at, cells)| {
            let partition = first_places.partition_point(|first| *first as usize <= at) - 1;
            (partition as u128, cells)
        })
        .collect();
    got.sort();
    assert!(got == expected, "{label}: rows");
    assert_untouched(machine, &target, key_bytes.len());
    for column in &columns {
        assert_untouched(machine, &column.to, column.bytes.len());
    }
    assert_untouched(machine, &offsets, (partitions + 1) * 4);
}
