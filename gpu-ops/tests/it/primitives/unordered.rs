//! Radix partitions in any order: the rows of each partition as a set, and where partitions begin.

use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{Keys, Payload, RowCount, radix_partition_unordered};

use super::partition::{Case, digit, pack};
use super::{Machine, Numbers, assert_untouched};

/// What `radix_partition_unordered` makes of a case that keeps its keys.
pub(super) fn check(machine: &Machine, case: &Case<'_>, count: RowCount) {
    let rows = case.keys.len();
    let label = format!(
        "{}, unordered: {rows} keys of {} bytes, payloads {:?}, {:?} {:?}",
        machine.name, case.width, case.payloads, case.digits, case.bits
    );
    let key_bytes = pack(case.keys, case.width);
    let source = machine.upload(&key_bytes);
    let target = machine.space(key_bytes.len());
    let mut numbers = Numbers(78);
    let columns: Vec<(Vec<u8>, Option<DeviceBuffer>, DeviceBuffer, u32)> = case
        .payloads
        .iter()
        .map(|column| {
            let (values, width): (Vec<u128>, u32) = match *column {
                0 => ((0..rows as u128).collect(), 4),
                width => (
                    (0..rows).map(|_| u128::from(numbers.draw())).collect(),
                    width,
                ),
            };
            let bytes = pack(&values, width);
            let from = (*column != 0).then(|| machine.upload(&bytes));
            let to = machine.space(bytes.len());
            (bytes, from, to, width)
        })
        .collect();
    let payloads: Vec<Payload> = columns
        .iter()
        .map(|(_, from, to, width)| Payload {
            from: from.as_ref().map(DeviceBuffer::ptr),
            to: to.ptr(),
            width: *width,
        })
        .collect();
    let partitions = 1usize << case.bits.len();
    let offsets = machine.space((partitions + 1) * 4);
    unsafe {
        radix_partition_unordered(
            &machine.runtime,
            &machine.stream,
            Keys {
                ptr: source.ptr(),
                width: case.width,
            },
            target.ptr(),
            &payloads,
            count,
            case.digits,
            case.bits.clone(),
            offsets.ptr(),
        )
        .unwrap();
    }

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
    let mut sources: Vec<(&[u8], u32)> = vec![(&key_bytes, case.width)];
    sources.extend(
        columns
            .iter()
            .map(|(bytes, _, _, width)| (bytes.as_slice(), *width)),
    );
    let mut expected: Vec<(u128, Vec<u8>)> = whole(&sources)
        .into_iter()
        .enumerate()
        .map(|(row, cells)| (digit(case, case.keys[row]), cells))
        .collect();
    expected.sort();

    let got_keys: Vec<u8> = machine.read(&target, key_bytes.len());
    let got_columns: Vec<Vec<u8>> = columns
        .iter()
        .map(|(bytes, _, to, _)| machine.read(to, bytes.len()))
        .collect();
    let mut results: Vec<(&[u8], u32)> = vec![(&got_keys, case.width)];
    results.extend(
        got_columns
            .iter()
            .zip(&columns)
            .map(|(got, (_, _, _, width))| (got.as_slice(), *width)),
    );
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
    for (bytes, _, to, _) in &columns {
        assert_untouched(machine, to, bytes.len());
    }
    assert_untouched(machine, &offsets, (partitions + 1) * 4);
}
