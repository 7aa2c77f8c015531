//! Exclusive sums.

use warpline_gpu::primitives::{RowCount, exclusive_sum};

use super::{Machine, Numbers, SIZES, assert_untouched, machines};

fn sums(counts: &[u32]) -> Vec<u64> {
    let mut sum = 0u64;
    let mut out = vec![0];
    out.extend(counts.iter().map(|c| {
        sum += u64::from(*c);
        sum
    }));
    out
}

fn check(machine: &Machine, counts: &[u32], rows: RowCount, used: usize) {
    let label = format!("{}: {} of {rows:?}", machine.name, used);
    let expected = sums(&counts[..used]);
    let input = machine.upload(counts);
    let wide = machine.space((used + 1) * 8);
    let narrow = machine.space((used + 1) * 4);
    let in_place = machine.space((counts.len() + 1) * 4);
    in_place.upload_values(&machine.stream, 0, counts).unwrap();
    let sum = |from: &warpline_gpu::memory::DeviceBuffer,
               to: &warpline_gpu::memory::DeviceBuffer,
               wide_out| unsafe {
        let (from, to) = (from.ptr(), to.ptr());
        exclusive_sum(&machine.runtime, &machine.stream, from, to, rows, wide_out).unwrap();
    };
    sum(&input, &wide, true);
    sum(&input, &narrow, false);
    sum(&in_place, &in_place, false);
    assert!(machine.read::<u64>(&wide, used + 1) == expected, "{label}");
    let low: Vec<u32> = expected.iter().map(|s| *s as u32).collect();
    assert!(machine.read::<u32>(&narrow, used + 1) == low, "{label}");
    assert!(machine.read::<u32>(&in_place, used + 1) == low, "{label}");
    assert_untouched(machine, &wide, (used + 1) * 8);
    assert_untouched(machine, &narrow, (used + 1) * 4);
}

#[test]
fn sums_of_every_size() {
    for machine in machines() {
        let mut numbers = Numbers(3);
        for size in SIZES {
            let counts: Vec<u32> = (0..size).map(|_| numbers.draw() as u32 % 9).collect();
            check(&machine, &counts, RowCount::Known(size as u64), size);
        }
    }
}

#[test]
fn sums_of_a_number_of_rows_known_to_the_device() {
    for machine in machines() {
        let counts: Vec<u32> = (0..30_000).collect();
        for (rows, most) in [
            (0u64, 30_000u64),
            (1, 30_000),
            (9_000, 30_000),
            (30_000, 30_000),
            (77_777, 30_000),
            (5, 8),
            (9, 8),
            (0, 0),
        ] {
            let ([_, device], _count) = machine.row_counts(rows, most);
            check(&machine, &counts, device, rows.min(most) as usize);
        }
    }
}

#[test]
fn sums_pass_32_bits() {
    for machine in machines() {
        for size in [7, 5_000, 50_000] {
            let counts = vec![u32::MAX; size];
            check(&machine, &counts, RowCount::Known(size as u64), size);
        }
    }
}
