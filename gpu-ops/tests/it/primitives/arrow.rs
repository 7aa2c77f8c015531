//! Columns of codes in Arrow's layout.

use warpline_gpu::primitives::{CodesToWiden, pack_flags, widen_codes};

use super::{Machine, Numbers, SIZES, assert_untouched, machines};

/// The lowest `bytes` bytes of a number, whose sign goes on beyond 16.
fn bytes_of(value: i128, bytes: usize) -> Vec<u8> {
    let sign = if value < 0 { 0xff } else { 0 };
    let low = value.to_le_bytes().into_iter();
    low.chain(std::iter::repeat(sign)).take(bytes).collect()
}

fn widened(machine: &Machine, codes: &[i128], width: usize, base: i128, out_width: usize) {
    let input: Vec<u8> = codes.iter().flat_map(|c| bytes_of(*c, width)).collect();
    let input = machine.upload(&input);
    let bytes = codes.len() * out_width;
    let out = machine.space(bytes);
    let of = CodesToWiden {
        codes: input.ptr(),
        width: width as u8,
        base,
        out: out.ptr(),
        out_width: out_width as u8,
        rows: codes.len() as u64,
    };
    unsafe { widen_codes(&machine.runtime, &machine.stream, &of).unwrap() };
    // Codes are unsigned, but for those of 16 bytes.
    let code = |code: i128| match width {
        16 => code,
        width => code & ((1 << (8 * width)) - 1),
    };
    let values = codes.iter().map(|c| base.wrapping_add(code(*c)));
    let expected: Vec<u8> = values.flat_map(|v| bytes_of(v, out_width)).collect();
    let label = format!(
        "{}: {} codes of {width} bytes as {out_width}",
        machine.name,
        codes.len()
    );
    assert!(machine.read::<u8>(&out, bytes) == expected, "{label}");
    assert_untouched(machine, &out, bytes);
}

#[test]
fn codes_of_every_width() {
    for machine in machines() {
        let mut numbers = Numbers(11);
        for rows in SIZES {
            let codes: Vec<i128> = (0..rows).map(|_| numbers.draw().into()).collect();
            for (width, base, out_width) in [
                (1, -3, 1),
                (1, -300, 2),
                (2, i32::MIN.into(), 4),
                (4, 0, 4),
                (4, i64::MIN.into(), 8),
                (8, i64::MIN.into(), 8),
                (8, -1, 16),
                (16, 0, 16),
                (16, 0, 32),
                (1, -7, 32),
            ] {
                widened(&machine, &codes, width, base, out_width);
            }
        }
        let extremes = [i128::MIN, i128::MAX, -1, 0, 1];
        widened(&machine, &extremes, 16, 0, 16);
        widened(&machine, &extremes, 16, 0, 32);
    }
}

#[test]
fn flags_as_bits() {
    for machine in machines() {
        let mut numbers = Numbers(12);
        for rows in SIZES {
            let mixed: Vec<u8> = (0..rows).map(|_| (numbers.draw() % 3) as u8).collect();
            for flags in [vec![0; rows], vec![1; rows], mixed] {
                let input = machine.upload(&flags);
                let bytes = rows.div_ceil(32) * 4;
                let out = machine.space(bytes);
                let zeros = machine.word();
                unsafe {
                    pack_flags(
                        &machine.runtime,
                        &machine.stream,
                        input.ptr(),
                        out.ptr(),
                        zeros.ptr(),
                        rows as u64,
                    )
                    .unwrap();
                }
                let label = format!("{}: {rows} flags", machine.name);
                let mut expected = vec![0u32; rows.div_ceil(32)];
                for (row, flag) in flags.iter().enumerate() {
                    expected[row / 32] |= u32::from(*flag != 0) << (row % 32);
                }
                let words = expected.len();
                assert!(machine.read::<u32>(&out, words) == expected, "{label}");
                let unset = flags.iter().filter(|flag| **flag == 0).count() as u64;
                assert_eq!(machine.read::<u64>(&zeros, 1), [unset], "{label}");
                assert_untouched(&machine, &out, bytes);
            }
        }
    }
}
