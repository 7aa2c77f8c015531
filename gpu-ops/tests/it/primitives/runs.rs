//! Copies of many runs of bytes.

use warpline_gpu::memory::DeviceBuffer;
use warpline_gpu::primitives::{ByteRun, copy_runs};

use super::{Machine, Numbers, machines};

/// Copies runs of these (bytes, place in the source, place in the target) and compares all of the target.
fn check(
    machine: &Machine,
    runs: &[(usize, usize, usize)],
    from: &DeviceBuffer,
    across_link: bool,
) {
    let room = runs.iter().map(|(bytes, _, to)| bytes + to).max();
    let room = room.unwrap_or(0);
    let to = machine.space(room);
    let source: Vec<u8> = machine.read(from, from.len());
    let mut expected = vec![0xA5; to.len()];
    let listed: Vec<ByteRun> = runs
        .iter()
        .map(|(bytes, begin, end)| {
            expected[*end..end + bytes].copy_from_slice(&source[*begin..begin + bytes]);
            ByteRun {
                from: from.ptr_at(*begin).unwrap(),
                to: to.ptr_at(*end).unwrap(),
                bytes: *bytes as u64,
            }
        })
        .collect();
    unsafe { copy_runs(&machine.runtime, &machine.stream, &listed, across_link).unwrap() };
    assert!(
        machine.read::<u8>(&to, to.len()) == expected,
        "{}: {runs:?}",
        machine.name
    );
}

#[test]
fn runs_of_every_length_and_place() {
    const BYTES: usize = 300_000;
    for machine in machines() {
        let mut numbers = Numbers(5);
        let bytes: Vec<u8> = (0..BYTES).map(|_| numbers.draw() as u8).collect();
        let device = machine.upload(&bytes);
        let mut host = machine.runtime.host_pool().allocate(BYTES, "test").unwrap();
        host.host_bytes_mut().unwrap().copy_from_slice(&bytes);
        for (from, across_link) in [(&device, false), (&host, true)] {
            check(&machine, &[], from, across_link);
            // Each way that source and target can differ in their lowest bits, around the ends of words and lines.
            let mut runs = Vec::new();
            let mut at = 0;
            for begin in 0..18 {
                for bytes in [0, 1, 3, 4, 15, 16, 17, 127, 128, 129, 1000] {
                    runs.push((bytes, begin * 7, at));
                    at += bytes + begin;
                }
            }
            check(&machine, &runs, from, across_link);
            // Several pieces.
            for (begin, end) in [(0, 0), (8, 16), (8, 24), (132, 0), (1, 3)] {
                check(&machine, &[(BYTES - 200, begin, end)], from, across_link);
            }
            // Several launches.
            let many: Vec<_> = (0..2500).map(|i| (24, i * 100, i * 32)).collect();
            check(&machine, &many, from, across_link);
        }
    }
}
