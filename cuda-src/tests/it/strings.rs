//! Functions on strings read nothing outside their column, at any alignment and length.

use warpline_cuda::emulator::{CompileOptions, LaunchConfig, Sanitizer, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{Numbers, compile_with, device, run};

kernel_args! {
    pub struct StringArgs {
        pub data: DevicePtr as "const u8*",
        pub offsets: DevicePtr as "const u64*",
        pub needle: DevicePtr as "const u64*",
        pub tokens: DevicePtr as "const u16*",
        pub out: DevicePtr as "i64*",
        pub rows: u64,
        pub needle_bytes: u64,
    }
}

const BODY: &str = r#"
#include "strings.cuh"
WL_KERNEL(strings, StringArgs, args) {
    for (u64 k = threadIdx.x; k < args.rows; k += blockDim.x) {
        const Text t = text_at(args.data, args.offsets[k], args.offsets[k + 1]);
        i64* out = args.out + k * 12;
        out[0] = text_find(t, (i64)t.b, args.needle, args.needle_bytes) - (i64)t.b;
        out[1] = text_starts(t, args.needle, args.needle_bytes);
        out[2] = text_ends(t, args.needle, args.needle_bytes);
        out[3] = text_compare(t, args.needle, args.needle_bytes);
        out[4] = text_length(t);
        out[5] = text_like<false>(t, args.tokens, 4);
        out[6] = text_like<true>(t, args.tokens, 4);
        out[7] = text_bytes(text_slice(t, 1, 5));
        out[8] = text_bytes(text_last(t, 2));
        out[9] = (i64)text_pack<3, 21>(t);
        out[10] = text_equals(t, args.needle, args.needle_bytes);
        out[11] = text_bytes(text_but_last(t, 1));
    }
}
"#;

/// Random strings one after the other, with nothing behind the last pair of words.
fn check(sanitizer: Sanitizer) {
    let options = CompileOptions {
        sanitizer,
        ..CompileOptions::default()
    };
    let kernel = compile_with("strings.cu", &[StringArgs::CUDA], BODY, &options)
        .kernel("strings")
        .unwrap();
    let letters = ["a", "b", "é", "🦀"];
    for seed in 0..60u64 {
        let mut numbers = Numbers::new(seed + 1);
        let texts: Vec<String> = (0..seed % 9 + 1)
            .map(|_| {
                let length = numbers.draw() >> 32;
                (0..length % [3, 9, 20][seed as usize % 3])
                    .map(|_| letters[(numbers.draw() >> 40) as usize % letters.len()])
                    .collect()
            })
            .collect();
        let mut bytes: Vec<u8> = texts.concat().into_bytes();
        let mut offsets = vec![0u64];
        for text in &texts {
            offsets.push(offsets[offsets.len() - 1] + text.len() as u64);
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let words = bytes.as_chunks::<8>().0.iter();
        let mut words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        let needle = ["a", "ab", "aéa", "baba", "abaab", "🦀🦀b"][seed as usize % 6];
        let mut padded = needle.as_bytes().to_vec();
        padded.resize(needle.len().next_multiple_of(8), 0);
        let chunks = padded.as_chunks::<8>().0.iter();
        let mut constant: Vec<u64> = chunks.map(|word| u64::from_ne_bytes(*word)).collect();
        // %a_%
        let mut tokens: Vec<u16> = vec![257, u16::from(b'a'), 256, 257];
        let mut out = vec![0i64; texts.len() * 12];
        let args = StringArgs {
            data: device(&mut words),
            offsets: device(&mut offsets),
            needle: device(&mut constant),
            tokens: device(&mut tokens),
            out: device(&mut out),
            rows: texts.len() as u64,
            needle_bytes: needle.len() as u64,
        };
        run(
            &kernel,
            LaunchConfig::new(1, 32),
            &args,
            Schedule::Ascending,
        )
        .unwrap();
        for (text, out) in texts.iter().zip(out.chunks(12)) {
            let chars: Vec<char> = text.chars().collect();
            let bytes_of = |chars: &[char]| chars.iter().map(|c| c.len_utf8() as i64).sum::<i64>();
            let found = text.find(needle).map(|at| at as i64);
            match found {
                Some(at) => assert_eq!(out[0], at, "{needle} in {text}"),
                None => assert!(out[0] < 0, "{needle} in {text}"),
            }
            assert_eq!(out[1] != 0, text.starts_with(needle), "{text}");
            assert_eq!(out[2] != 0, text.ends_with(needle), "{text}");
            assert_eq!(out[3], text.as_str().cmp(needle) as i64, "{text}");
            assert_eq!(out[4], chars.len() as i64, "{text}");
            let like = chars.windows(2).any(|pair| pair[0] == 'a');
            assert_eq!((out[5] != 0, out[6] != 0), (like, like), "{text}");
            let (from, to) = (1.min(chars.len()), 5.min(chars.len()));
            assert_eq!(out[7], bytes_of(&chars[from..to]), "{text}");
            assert_eq!(
                out[8],
                bytes_of(&chars[chars.len().saturating_sub(2)..]),
                "{text}"
            );
            let digit = |i: usize| chars.get(i).map_or(0, |c| i64::from(u32::from(*c)) + 1);
            assert_eq!(
                out[9],
                (digit(0) << 42) | (digit(1) << 21) | digit(2),
                "{text}"
            );
            assert_eq!(out[10] != 0, text == needle, "{text}");
            assert_eq!(
                out[11],
                bytes_of(&chars[..chars.len().saturating_sub(1)]),
                "{text}"
            );
        }
    }
}

#[test]
fn functions_equal_those_of_the_host() {
    check(Sanitizer::None);
}

#[test]
fn warps_search_their_strings_together() {
    check_search(Sanitizer::None);
}

#[test]
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_address_strings() {
    check(Sanitizer::Address);
    check_search(Sanitizer::Address);
}

#[test]
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_undefined_strings() {
    check(Sanitizer::Undefined);
    check_search(Sanitizer::Undefined);
}

kernel_args! {
    pub struct SearchArgs {
        pub data: DevicePtr as "const u8*",
        pub offsets: DevicePtr as "const u64*",
        pub rows_of: DevicePtr as "const u64*",
        pub needle: DevicePtr as "const u64*",
        pub out: DevicePtr as "i64*",
        pub rows: u64,
        pub needle_bytes: u64,
    }
}

// Twice the needle, one behind the other. A row number past the last one is a lane without a row.
const SEARCH: &str = r#"
#include "strings.cuh"
WL_KERNEL(search, SearchArgs, args) {
    for (u64 first = 0; first < args.rows; first += blockDim.x) {
        const u64 k = first + threadIdx.x;
        const u64 row = k < args.rows ? args.rows_of[k] : args.rows;
        const bool alive = row < args.rows;
        const Text t = text_at(args.data, alive ? args.offsets[row] : 0, alive ? args.offsets[row + 1] : 0);
        const i64 once = text_find_warp(t, (i64)t.b, args.needle, args.needle_bytes);
        const i64 behind = text_after_warp(t, once < 0 ? once : once + (i64)args.needle_bytes, args.needle, args.needle_bytes);
        if (k < args.rows) {
            args.out[2 * k] = alive && once >= 0 ? once - (i64)t.b : -1;
            args.out[2 * k + 1] = alive && behind >= 0 ? behind - (i64)t.b : -1;
        }
    }
}
"#;

/// A warp finds in its strings what each lane finds in its own: strings of all lengths, side by side, with rows left out,
/// in another order, the same row more than once.
fn check_search(sanitizer: Sanitizer) {
    let options = CompileOptions {
        sanitizer,
        ..CompileOptions::default()
    };
    let kernel = compile_with("search.cu", &[SearchArgs::CUDA], SEARCH, &options)
        .kernel("search")
        .unwrap();
    let needles = [
        "a",
        "ab",
        "aéa",
        "baba",
        "abaab",
        "🦀🦀b",
        "abababababababababab",
    ];
    let mut found = 0;
    for seed in 0..84u64 {
        let mut numbers = Numbers::new(seed + 7);
        let needle = needles[seed as usize % needles.len()];
        let longest = [1, 9, 60, 700][seed as usize / 7 % 4];
        let rows = [1, 31, 32, 33, 150][seed as usize % 5];
        let texts: Vec<String> = (0..rows)
            .map(|_| {
                let length = (numbers.draw() >> 32) % longest;
                let mut text = String::new();
                while (text.len() as u64) < length {
                    let drawn = numbers.draw() >> 40;
                    text += match drawn % 23 {
                        0 => needle,
                        n => ["a", "b", "é", "🦀", "ab", "x"][n as usize % 6],
                    };
                }
                text
            })
            .collect();
        let mut bytes: Vec<u8> = texts.concat().into_bytes();
        let mut offsets = vec![0u64];
        for text in &texts {
            offsets.push(offsets[offsets.len() - 1] + text.len() as u64);
        }
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let words = bytes.as_chunks::<8>().0.iter();
        let mut words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        let mut padded = needle.as_bytes().to_vec();
        padded.resize(needle.len().next_multiple_of(8), 0);
        let chunks = padded.as_chunks::<8>().0.iter();
        let mut constant: Vec<u64> = chunks.map(|word| u64::from_ne_bytes(*word)).collect();
        let mut rows_of: Vec<u64> = (0..rows)
            .map(|row| match seed % 4 {
                0 => row,
                1 if numbers.draw() >> 33 & 1 == 0 => rows,
                1 => row,
                2 if numbers.draw() >> 33 & 15 != 0 => rows,
                2 => row,
                _ => (numbers.draw() >> 33) % rows,
            })
            .collect();
        let mut out = vec![0i64; 2 * texts.len()];
        let args = SearchArgs {
            data: device(&mut words),
            offsets: device(&mut offsets),
            rows_of: device(&mut rows_of),
            needle: device(&mut constant),
            out: device(&mut out),
            rows,
            needle_bytes: needle.len() as u64,
        };
        run(
            &kernel,
            LaunchConfig::new(1, 64),
            &args,
            Schedule::Ascending,
        )
        .unwrap();
        for (row, out) in rows_of.iter().zip(out.chunks(2)) {
            let text = texts.get(*row as usize).map_or("", |text| text.as_str());
            let once = text.find(needle);
            let behind = once.and_then(|at| {
                let from = at + needle.len();
                Some(from + text[from..].find(needle)? + needle.len())
            });
            let expected = [once, behind].map(|at| at.map_or(-1, |at| at as i64));
            assert_eq!(out, expected, "{needle} in {text}");
            found += usize::from(behind.is_some());
        }
    }
    assert!(found > 500, "{found} strings have the needle twice");
}
