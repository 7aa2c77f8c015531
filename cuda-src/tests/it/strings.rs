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
        pub patterns: DevicePtr as "const u64*",
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
        i64* out = args.out + k * 19;
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
        for (u32 code = 0; code < 6; ++code) out[12 + code] = text_like_coded<false>(t, args.patterns, code);
        out[18] = text_like_coded<true>(t, args.patterns, 4);
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
        // The needle in each kind of pattern, the tokens, and the needle between tokens of any text once more, as tokens.
        let length = needle.len() as u64;
        let of_constant = (0..4u64).map(|kind| (kind, length));
        let heads = of_constant.chain([(4, 4), (3, length)]);
        let mut patterns: Vec<u64> = heads
            .flat_map(|(kind, length)| [(if kind == 4 { 12 } else { 13 }) << 3 | kind, length])
            .collect();
        let number = |token: (usize, &u16)| u64::from(*token.1) << (16 * token.0);
        patterns.push(tokens.iter().enumerate().map(number).sum());
        patterns.extend(&constant);
        let mut out = vec![0i64; texts.len() * 19];
        let args = StringArgs {
            data: device(&mut words),
            offsets: device(&mut offsets),
            needle: device(&mut constant),
            tokens: device(&mut tokens),
            patterns: device(&mut patterns),
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
        for (text, out) in texts.iter().zip(out.chunks(19)) {
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
            let expected = [
                text == needle,
                text.ends_with(needle),
                text.starts_with(needle),
                text.contains(needle),
                like,
                text.contains(needle),
                like,
            ];
            let found: Vec<bool> = out[12..].iter().map(|found| *found != 0).collect();
            assert_eq!(found, expected, "{needle} in {text}");
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
fn blocks_search_the_strings_of_a_tile() {
    check_search(Sanitizer::None, Schedule::Ascending);
    check_search(Sanitizer::None, Schedule::Descending);
    check_search(Sanitizer::None, Schedule::Random(7));
    check_search(Sanitizer::None, Schedule::RandomYields(7));
}

#[test]
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_address_strings() {
    check(Sanitizer::Address);
    check_search(Sanitizer::Address, Schedule::Ascending);
}

#[test]
#[ignore = "run by the tests of sanitizers.rs in a child process"]
fn child_undefined_strings() {
    check(Sanitizer::Undefined);
    check_search(Sanitizer::Undefined, Schedule::Ascending);
}

kernel_args! {
    pub struct SearchArgs {
        pub data: DevicePtr as "const u8*",
        pub offsets: DevicePtr as "const u64*",
        pub live: DevicePtr as "const u8*",
        pub one: DevicePtr as "const u64*",
        pub two: DevicePtr as "const u64*",
        pub out: DevicePtr as "i64*",
        pub rows: u64,
        pub one_bytes: u64,
        pub two_bytes: u64,
        /// Forget what earlier tiles told.
        pub afresh: u64,
    }
}

/// Rows of a tile.
const TILE: usize = 64;

// Where the first constant ends, where both end, and who looked for each: 2 for all threads together.
const SEARCH: &str = r#"
#include "text_search.cuh"
struct Shared {
    alignas(16) TextTile<64> one;
    alignas(16) TextTile<64> both;
};
template <u32 THREADS, u32 ROWS>
WL_DEVICE void search(const SearchArgs& args, Shared& shared) {
    TextPace pace = {}, both_pace = {};
    for (u64 tile = blockIdx.x; tile * 64 < args.rows; tile += gridDim.x) {
        if (args.afresh != 0) {
            pace = {};
            both_pace = {};
        }
        const u64 row = tile * 64 + threadIdx.x * ROWS;
        u32 live = 0;
        for (u32 k = 0; k < ROWS; ++k)
            if (row + k < args.rows) live |= (u32)(args.live[row + k] != 0) << k;
        const TextParts<1> one = {{args.one}, {args.one_bytes}};
        const TextParts<2> both = {{args.one, args.two}, {args.one_bytes, args.two_bytes}};
        const bool found = block_text_after<THREADS, ROWS>(args.data, args.offsets, tile * 64, args.rows, live, one,
                                                           shared.one, pace);
        const bool both_found = block_text_after<THREADS, ROWS>(args.data, args.offsets, tile * 64, args.rows, live,
                                                                both, shared.both, both_pace);
        for (u32 k = 0; k < ROWS; ++k) {
            if ((live >> k & 1) == 0) continue;
            const Text t = text_at(args.data, args.offsets[row + k], args.offsets[row + k + 1]);
            const u32 place = threadIdx.x * ROWS + k;
            const i64 a = found ? text_found(t, shared.one.ends[place]) : text_after(t, (i64)t.b, one);
            const i64 b = both_found ? text_found(t, shared.both.ends[place]) : text_after(t, (i64)t.b, both);
            i64* out = args.out + (row + k) * 3;
            out[0] = a < 0 ? -1 : a - (i64)t.b;
            out[1] = b < 0 ? -1 : b - (i64)t.b;
            out[2] = (found ? 2 : 1) + (both_found ? 20 : 10);
        }
    }
}
WL_KERNEL(search_one, SearchArgs, args) {
    WL_SHARED(Shared, shared);
    search<64, 1>(args, shared);
}
WL_KERNEL(search_two, SearchArgs, args) {
    WL_SHARED(Shared, shared);
    search<32, 2>(args, shared);
}
"#;

/// A constant as kernels have it: words, zeros behind its last byte.
fn constant(bytes: &[u8]) -> Vec<u64> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8).max(8), 0);
    let words = padded.as_chunks::<8>().0.iter();
    words.map(|word| u64::from_ne_bytes(*word)).collect()
}

/// Where `constant` ends first behind byte `from`.
fn end_of(text: &[u8], from: usize, constant: &[u8]) -> Option<usize> {
    let rest = &text[from..];
    if constant.is_empty() {
        return Some(from);
    }
    let at = rest.windows(constant.len()).position(|w| w == constant)?;
    Some(from + at + constant.len())
}

/// Constants of one to forty bytes in strings that are cut anywhere from a row of bytes, many of which lie across a
/// border; few rows live, none, or all; found soon, seldom, often.
fn check_search(sanitizer: Sanitizer, schedule: Schedule) {
    let options = CompileOptions {
        sanitizer,
        ..CompileOptions::default()
    };
    let module = compile_with("search.cu", &[SearchArgs::CUDA], SEARCH, &options);
    let kernels = [("search_one", 64), ("search_two", 32)]
        .map(|(name, threads)| (module.kernel(name).unwrap(), threads));
    // Rows where the constant is and is not, by who looked for it.
    let mut outcomes = [[0; 2]; 2];
    let mut both = 0;
    for seed in 0..160u64 {
        let mut numbers = Numbers::new(seed + 11);
        let mut below = |limit: u64| (numbers.draw() >> 32) % limit;
        let letters: &[u8] = [
            &b"ab"[..],
            b"abcdefgh",
            b"a\0",
            b"abcdefghijklmnopqrstuvwxyz",
        ][seed as usize % 4];
        let mut random = |length: u64| -> Vec<u8> {
            let letter = |_| letters[below(letters.len() as u64) as usize];
            (0..length).map(letter).collect()
        };
        let one = random(1 + seed / 2 % 40);
        let two = random(1 + seed / 3 % 9);
        let noise = random(1 << 14);
        let rows = [1, 31, 64, 65, 200, 330][seed as usize % 6];
        let longest = [1, 9, 60, 300][seed as usize / 4 % 4];
        let density = [3, 40, 400][seed as usize / 16 % 3];
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = vec![0u64];
        for _ in 0..rows {
            let length = if below(9) == 0 { 0 } else { below(longest) };
            let end = offsets[offsets.len() - 1] + length;
            while (bytes.len() as u64) < end {
                match below(density) {
                    0 => bytes.extend(&one),
                    1 => bytes.extend(&two),
                    _ => bytes.push(noise[below(1 << 14) as usize]),
                }
            }
            offsets.push(end);
        }
        // What is behind the last string may be the rest of a constant.
        bytes.resize((offsets[rows] as usize).next_multiple_of(16), 0);
        let texts: Vec<&[u8]> = offsets
            .windows(2)
            .map(|pair| &bytes[pair[0] as usize..pair[1] as usize])
            .collect();
        let words = bytes.as_chunks::<16>().0.iter();
        let mut words: Vec<u128> = words.map(|word| u128::from_ne_bytes(*word)).collect();
        let alive = [1, 1, 2, 20][seed as usize / 5 % 4];
        let mut live: Vec<u8> = (0..rows).map(|_| u8::from(below(alive) == 0)).collect();
        let (mut one_words, mut two_words) = (constant(&one), constant(&two));
        for (kernel, threads) in &kernels {
            let mut out = vec![0i64; 3 * rows];
            let args = SearchArgs {
                data: device(&mut words),
                offsets: device(&mut offsets),
                live: device(&mut live),
                one: device(&mut one_words),
                two: device(&mut two_words),
                out: device(&mut out),
                rows: rows as u64,
                one_bytes: one.len() as u64,
                two_bytes: two.len() as u64,
                afresh: seed / 7 % 2,
            };
            let config = LaunchConfig {
                shared_bytes: 2 * (12 * TILE + 16),
                ..LaunchConfig::new(1, *threads)
            };
            run(kernel, config, &args, schedule).unwrap();
            for ((text, live), out) in texts.iter().zip(&live).zip(out.chunks(3)) {
                if *live == 0 {
                    assert_eq!(out, [0, 0, 0]);
                    continue;
                }
                let first = end_of(text, 0, &one);
                let last = first.and_then(|end| end_of(text, end, &two));
                let expected = [first, last].map(|end| end.map_or(-1, |end| end as i64));
                assert_eq!(out[..2], expected, "{one:?}, {two:?} in {text:?}, {seed}");
                outcomes[out[2] as usize % 10 - 1][usize::from(first.is_some())] += 1;
                both += usize::from(out[2] >= 20 && last.is_some());
            }
        }
    }
    assert!(
        outcomes.iter().flatten().all(|rows| *rows > 500),
        "{outcomes:?}"
    );
    assert!(both > 200, "{both}");
}
