//! Numbers of rows in partitions, and running values.

use warpline_gpu::primitives::{
    Frames, Numbering, OrderedKeys, RowCount, RunningCombine, RunningValue, WindowNumbers,
    exclusive_sum, first_of_partitions, frame_extremes, frame_squares, number_windows, running,
};

use super::{Machine, Numbers, SIZES, machines};

/// How two values are combined.
type Of<T> = fn(T, T) -> T;

/// Rows with random partitions and peers: the marks that begin them.
fn marks(rows: usize, partition: u64, peers: u64, numbers: &mut Numbers) -> (Vec<u32>, Vec<u32>) {
    let mut begin = Vec::new();
    let mut among = Vec::new();
    for row in 0..rows {
        let new = row == 0 || numbers.draw().is_multiple_of(partition);
        begin.push(u32::from(new));
        among.push(u32::from(new || numbers.draw().is_multiple_of(peers)));
    }
    (begin, among)
}

fn sums(machine: &Machine, marks: &[u32]) -> warpline_gpu::memory::DeviceBuffer {
    let mut words = marks.to_vec();
    words.push(0);
    let buffer = machine.upload(&words);
    let rows = RowCount::Known(marks.len() as u64);
    let (runtime, stream) = (&machine.runtime, &machine.stream);
    unsafe { exclusive_sum(runtime, stream, buffer.ptr(), buffer.ptr(), rows, false).unwrap() };
    buffer
}

/// For each row the first row of its run and the row behind it.
fn runs(marks: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let n = marks.len();
    let (mut starts, mut ends) = (vec![0; n], vec![n as u32; n]);
    for row in 0..n {
        starts[row] = if marks[row] == 1 {
            row as u32
        } else {
            starts[row - 1]
        };
    }
    for row in (0..n.saturating_sub(1)).rev() {
        ends[row] = if marks[row + 1] == 1 {
            row as u32 + 1
        } else {
            ends[row + 1]
        };
    }
    (starts, ends)
}

#[test]
fn rows_know_their_partition_and_peers() {
    for machine in machines() {
        let mut numbers = Numbers(11);
        for size in SIZES {
            for (partition, peers) in [(1, 1), (u64::MAX, u64::MAX), (7, 2), (1000, 3)] {
                let (begin, among) = marks(size, partition, peers, &mut numbers);
                let (partitions, groups) = (sums(&machine, &begin), sums(&machine, &among));
                let out: Vec<_> = (0..6).map(|_| machine.space(size.max(1) * 4)).collect();
                let into = WindowNumbers {
                    position: out[0].ptr(),
                    partition_start: out[1].ptr(),
                    partition_end: out[2].ptr(),
                    peer_start: out[3].ptr(),
                    peer_end: out[4].ptr(),
                    dense_rank: out[5].ptr(),
                };
                let rows = RowCount::Known(size as u64);
                let (runtime, stream) = (&machine.runtime, &machine.stream);
                let (p, g) = (partitions.ptr(), groups.ptr());
                unsafe { number_windows(runtime, stream, p, g, into, rows).unwrap() };
                let (starts, ends) = runs(&begin);
                let (peer_starts, peer_ends) = runs(&among);
                let mut dense = Vec::new();
                for row in 0..size {
                    let before = if begin[row] == 1 { 0 } else { dense[row - 1] };
                    dense.push(before + among[row]);
                }
                let positions: Vec<u32> = (0..size as u32).collect();
                let expected = [positions, starts, ends, peer_starts, peer_ends, dense];
                for (number, (out, expected)) in out.iter().zip(&expected).enumerate() {
                    let found = machine.read::<u32>(out, size);
                    assert!(
                        found == *expected,
                        "{}: {size} rows, number {number}",
                        machine.name
                    );
                }
            }
        }
    }
}

#[test]
fn the_first_of_each_partition_are_kept_with_their_peers() {
    let kinds = [Numbering::Row, Numbering::Rank, Numbering::DenseRank];
    for machine in machines() {
        let mut numbers = Numbers(14);
        for size in SIZES {
            for (partition, peers) in [(1, 1), (u64::MAX, u64::MAX), (7, 2), (1000, 40)] {
                let (begin, among) = marks(size, partition, peers, &mut numbers);
                // The order goes through the rows backwards; a key is a partition and a group of peers.
                let row_at = |place: usize| (size - 1 - place) as u32;
                let order: Vec<u32> = (0..size).map(row_at).collect();
                let mut words = vec![0u64; size.max(1)];
                let mut key = 0u64;
                for place in 0..size {
                    key += (u64::from(begin[place]) << 32) + u64::from(among[place]);
                    words[size - 1 - place] = key;
                }
                let words = machine.upload(&words);
                let ordered = machine.upload(&[order.clone(), vec![0]].concat());
                for (kind, most) in kinds.iter().flat_map(|k| [0, 1, 3, 100].map(|m| (*k, m))) {
                    let (out, kept) = (machine.space(size.max(1) * 4), machine.space(8));
                    let keys = OrderedKeys {
                        words: &[words.ptr()],
                        partition: &[!0 << 32],
                        order: ordered.ptr(),
                        rows: RowCount::Known(size as u64),
                    };
                    let (runtime, stream) = (&machine.runtime, &machine.stream);
                    let into = (out.ptr(), kept.ptr());
                    unsafe {
                        first_of_partitions(runtime, stream, &keys, (kind, most), into).unwrap();
                    }
                    let (mut row, mut rank, mut dense) = (0u64, 0, 0);
                    let mut expected = Vec::new();
                    for place in 0..size {
                        if begin[place] == 1 {
                            (row, rank, dense) = (0, 0, 0);
                        }
                        row += 1;
                        if among[place] == 1 {
                            (rank, dense) = (row, dense + 1);
                        }
                        let number = match kind {
                            Numbering::Row => row,
                            Numbering::Rank => rank,
                            Numbering::DenseRank => dense,
                        };
                        if number <= most {
                            expected.push(order[place]);
                        }
                    }
                    let count = machine.read::<u64>(&kept, 1)[0] as usize;
                    let what = format!("{}: {size} rows, {kind:?} {most}", machine.name);
                    assert_eq!(count, expected.len(), "{what}");
                    assert!(machine.read::<u32>(&out, count) == expected, "{what}");
                }
            }
        }
    }
}

#[test]
fn values_run_within_partitions() {
    for machine in machines() {
        let mut numbers = Numbers(12);
        for size in SIZES {
            for partition in [1, 5, 3000, u64::MAX] {
                let (begin, _) = marks(size, partition, 2, &mut numbers);
                let partitions = sums(&machine, &begin);
                let rows = RowCount::Known(size as u64);
                let (runtime, stream) = (&machine.runtime, &machine.stream);
                let run = |kind, buffer: &warpline_gpu::memory::DeviceBuffer| unsafe {
                    let (values, partitions) = (buffer.ptr(), partitions.ptr());
                    running(runtime, stream, kind, values, partitions, rows).unwrap();
                };
                let label = format!(
                    "{}: {size} rows, about {partition} a partition",
                    machine.name
                );

                let integers: Vec<i64> = (0..size).map(|_| numbers.draw() as i64).collect();
                let combine: [(RunningCombine, Of<i64>); 3] = [
                    (RunningCombine::Sum, i64::wrapping_add),
                    (RunningCombine::Min, i64::min),
                    (RunningCombine::Max, i64::max),
                ];
                for (kind, of) in combine {
                    let expected = expected(&integers, &begin, of);
                    let expected: Vec<i64> = expected.iter().map(|v| v ^ i64::MIN).collect();
                    let buffer = machine.upload(&integers);
                    run((RunningValue::I64, kind), &buffer);
                    assert!(
                        machine.read::<i64>(&buffer, size) == expected,
                        "{label} {kind:?}"
                    );
                }
                let wide: Vec<i128> = integers.iter().map(|v| i128::from(*v) << 50).collect();
                let buffer = machine.upload(&wide);
                run((RunningValue::I128, RunningCombine::Sum), &buffer);
                let sums = expected(&wide, &begin, i128::wrapping_add);
                assert!(machine.read::<i128>(&buffer, size) == sums, "{label}");

                let floats: Vec<f64> = integers.iter().map(|v| (v % 1000) as f64).collect();
                for (kind, of) in [
                    (RunningCombine::Sum, (|a, b| a + b) as Of<f64>),
                    (RunningCombine::Min, f64::min),
                    (RunningCombine::Max, f64::max),
                ] {
                    let buffer = machine.upload(&floats);
                    run((RunningValue::F64, kind), &buffer);
                    let expected = expected(&floats, &begin, of);
                    assert!(
                        machine.read::<f64>(&buffer, size) == expected,
                        "{label} {kind:?}"
                    );
                }
            }
        }
    }
}

fn expected<T: Copy>(values: &[T], begin: &[u32], combine: Of<T>) -> Vec<T> {
    let mut out: Vec<T> = Vec::with_capacity(values.len());
    for (row, value) in values.iter().enumerate() {
        out.push(match begin[row] == 1 {
            true => *value,
            false => combine(out[row - 1], *value),
        });
    }
    out
}

/// Frames from so many rows before each to so many behind it, cut off where partitions end.
struct Cut {
    before: i64,
    behind: i64,
    starts: Vec<u32>,
    ends: Vec<u32>,
    /// The rows' numbers, where their partitions begin, and what is behind these.
    words: [warpline_gpu::memory::DeviceBuffer; 3],
}

impl Cut {
    fn new(machine: &Machine, begin: &[u32], before: i64, behind: i64) -> Self {
        let (starts, ends) = runs(begin);
        let positions: Vec<u32> = (0..begin.len() as u32).collect();
        let words = [&positions, &starts, &ends].map(|words| {
            let mut words = words.clone();
            words.push(0);
            machine.upload(&words)
        });
        Self {
            before,
            behind,
            starts,
            ends,
            words,
        }
    }

    fn frames(&self) -> Frames {
        let [own, low, high] = &self.words;
        Frames {
            start: own.ptr(),
            start_plus: -self.before,
            end: own.ptr(),
            end_plus: self.behind + 1,
            partition_start: low.ptr(),
            partition_end: high.ptr(),
        }
    }

    /// The values of a row's frame.
    fn of<'v, T>(&self, values: &'v [T], row: usize) -> &'v [T] {
        let (low, high) = (i64::from(self.starts[row]), i64::from(self.ends[row]));
        let first = (row as i64 - self.before).clamp(low, high) as usize;
        let end = (row as i64 + self.behind + 1).clamp(low, high) as usize;
        values.get(first..end).unwrap_or_default()
    }
}

/// Frames of every length, empty ones among them, cut off where partitions end.
#[test]
fn extremes_of_frames() {
    for machine in machines() {
        let mut numbers = Numbers(13);
        for size in SIZES {
            for (partition, before, behind) in
                [(7, 2, 1), (u64::MAX, 40, 40), (3000, -3, 900), (50, 5, -2)]
            {
                let (begin, _) = marks(size, partition, 2, &mut numbers);
                let cut = Cut::new(&machine, &begin, before, behind);
                let values: Vec<i64> = (0..size).map(|_| numbers.draw() as i64).collect();
                for kind in [RunningCombine::Min, RunningCombine::Max] {
                    let mut padded = values.clone();
                    padded.push(0);
                    let buffer = machine.upload(&padded);
                    let rows = RowCount::Known(size as u64);
                    let of = (RunningValue::I64, kind);
                    let (runtime, stream) = (&machine.runtime, &machine.stream);
                    unsafe {
                        frame_extremes(runtime, stream, of, buffer.ptr(), cut.frames(), rows)
                            .unwrap()
                    };
                    let mut expected: Vec<i64> = (0..size)
                        .map(|row| {
                            let frame = cut.of(&values, row).iter().copied();
                            let found = match kind {
                                RunningCombine::Min => frame.min(),
                                _ => frame.max(),
                            };
                            found.unwrap_or(values[row]) ^ i64::MIN
                        })
                        .collect();
                    // Nothing behind the rows is theirs.
                    expected.push(0);
                    assert!(
                        machine.read::<i64>(&buffer, size + 1) == expected,
                        "{}: {size} rows, {partition} a partition, {before} {behind}, {kind:?}",
                        machine.name
                    );
                }
            }
        }
    }
}

/// Values that lie far from 0 and close together, of which a running sum of squares would keep nothing; some are none.
#[test]
fn squared_differences_of_frames() {
    let unknown = f64::from_bits(u64::MAX >> 1);
    for machine in machines() {
        let mut numbers = Numbers(15);
        for size in SIZES {
            for (partition, before, behind) in
                [(7, 2, 1), (u64::MAX, 40, 40), (3000, -3, 900), (50, 5, -2)]
            {
                let (begin, _) = marks(size, partition, 2, &mut numbers);
                let cut = Cut::new(&machine, &begin, before, behind);
                let mut values: Vec<f64> = (0..size)
                    .map(|_| match numbers.draw() % 5 {
                        0 => unknown,
                        n => 1e9 + n as f64 / 8.0,
                    })
                    .collect();
                values.push(0.0);
                let buffer = machine.upload(&values);
                let rows = RowCount::Known(size as u64);
                let (runtime, stream) = (&machine.runtime, &machine.stream);
                unsafe {
                    frame_squares(runtime, stream, buffer.ptr(), cut.frames(), rows).unwrap()
                };
                let found = machine.read::<f64>(&buffer, size + 1);
                for (row, found) in found[..size].iter().enumerate() {
                    let frame = cut.of(&values, row);
                    let known = frame.iter().filter(|v| v.to_bits() != unknown.to_bits());
                    let known: Vec<f64> = known.map(|value| value - 1e9).collect();
                    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
                    let expected: f64 = known.iter().map(|v| (v - mean) * (v - mean)).sum();
                    assert!(
                        (found - expected).abs() <= 1e-6 * expected,
                        "{}: {found} for {expected} in row {row} of {size}, {before} {behind}",
                        machine.name,
                    );
                }
                assert_eq!(found[size], 0.0, "nothing behind the rows is theirs");
            }
        }
    }
}
