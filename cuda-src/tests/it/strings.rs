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
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_address_strings() {
    check(Sanitizer::Address);
}

#[test]
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_undefined_strings() {
    check(Sanitizer::Undefined);
}
