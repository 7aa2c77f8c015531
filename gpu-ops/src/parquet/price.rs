//! What decoding a column costs the CPU and the device, for the choice between them.
//!
//! Rates are those of one core of a server and of one H200 behind a PCIe 5 link; they decide about small columns alone, since
//! the device is faster by more than they can be wrong once there is much to decode.

use std::time::Duration;

use super::codec::Codec;

/// What decides of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkSize {
    pub(crate) rows: u64,
    /// Bytes in the file, …
    pub(crate) compressed: u64,
    /// … and without compression.
    pub(crate) uncompressed: u64,
    pub(crate) codec: Codec,
    /// Strings as they are, which the CPU hashes one by one.
    pub(crate) plain_strings: bool,
}

impl ChunkSize {
    /// Bytes of a page that the device decompresses, about; 0 where it does not.
    pub(crate) fn page(&self) -> u64 {
        match self.codec.on_device() {
            None | Some(0) => 0,
            Some(_) => (self.uncompressed / self.rows.div_ceil(PAGE_ROWS).max(1)).min(PAGE_BYTES),
        }
    }
}

/// A core decodes, packs and counts a number, or the code of a string (600 million rows of seven columns: 5 s on 16;
/// 15 million of two: 98 ms).
const CORE_SECONDS_PER_VALUE: f64 = 30e-9;
/// A core reads, hashes and copies a string (30 million of 70 bytes: 1.6 s on 16).
const CORE_SECONDS_PER_STRING: f64 = 300e-9;
/// Bytes that a core decompresses in a second, counted without compression: Snappy and LZ4, …
const CORE_FAST: f64 = 1.5e9;
/// … and the codecs that a device leaves to the host.
const CORE_SLOW: f64 = 0.5e9;
/// What a column costs the device before its first byte: memory, launches, some ten waits for facts about the column.
const DEVICE_SECONDS_PER_COLUMN: f64 = 1e-3;
/// Loading the kernels from disk, once a device.
const DEVICE_SECONDS_OF_KERNELS: f64 = 5e-3;
/// Bytes a second from files to the device, somewhat below the slower of reading and the link.
const LINK: f64 = 25e9;
/// Bytes that a warp decompresses in a second, counted without compression: the last page is waited for.
const WARP: f64 = 60e6;
/// Rows and bytes at which writers end a page.
const PAGE_ROWS: u64 = 20_000;
const PAGE_BYTES: u64 = 1 << 20;

/// For each column of these chunks: is it decoded sooner by the CPU, with so many threads, than by the device? `loaded`: the device
/// has its kernels. Where it has not, the columns that gain from the device have to make up for loading them together.
pub(crate) fn cpu_is_sooner(columns: &[Vec<ChunkSize>], threads: usize, loaded: bool) -> Vec<bool> {
    let gains = columns.iter().map(|chunks| {
        let cpu = cpu_time(chunks, threads).as_secs_f64();
        cpu - device(chunks, threads)
    });
    let gains: Vec<f64> = gains.collect();
    let gain: f64 = gains.iter().filter(|gain| **gain > 0.0).sum();
    let worth = loaded || gain > DEVICE_SECONDS_OF_KERNELS;
    gains.iter().map(|gain| !worth || *gain < 0.0).collect()
}

fn decompression(chunk: &ChunkSize) -> f64 {
    let rate = match (chunk.codec, chunk.codec.on_device()) {
        (Codec::None, _) => return 0.0,
        (_, Some(_)) => CORE_FAST,
        (_, None) => CORE_SLOW,
    };
    chunk.uncompressed as f64 / rate
}

/// What the CPU takes with so many threads, each of which decodes whole row groups.
pub(crate) fn cpu_time(chunks: &[ChunkSize], threads: usize) -> Duration {
    let seconds = chunks.iter().map(|chunk| {
        let value = match chunk.plain_strings {
            true => CORE_SECONDS_PER_STRING,
            false => CORE_SECONDS_PER_VALUE,
        };
        chunk.rows as f64 * value + decompression(chunk)
    });
    let threads = threads.min(chunks.len()).max(1);
    Duration::from_secs_f64(seconds.sum::<f64>() / threads as f64)
}

/// What the device takes that has its kernels, in seconds.
fn device(chunks: &[ChunkSize], threads: usize) -> f64 {
    let on_host = chunks.iter().filter(|c| c.codec.on_device().is_none());
    let on_host: f64 = on_host.map(decompression).sum();
    let bytes = chunks.iter().map(|chunk| match chunk.codec.on_device() {
        Some(_) => chunk.compressed,
        None => chunk.compressed + chunk.uncompressed,
    });
    let bytes: u64 = bytes.sum();
    let last_page = chunks.iter().map(ChunkSize::page);
    let threads = threads.min(chunks.len()).max(1);
    DEVICE_SECONDS_PER_COLUMN
        + bytes as f64 / LINK
        + on_host / threads as f64
        + last_page.max().unwrap_or(0) as f64 / WARP
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(count: usize, rows: u64, bytes: u64, codec: Codec) -> Vec<ChunkSize> {
        let chunk = ChunkSize {
            rows,
            compressed: match codec {
                Codec::None => rows * bytes,
                _ => rows * bytes / 2,
            },
            uncompressed: rows * bytes,
            codec,
            plain_strings: false,
        };
        vec![chunk; count]
    }

    fn sooner(chunks: Vec<ChunkSize>, threads: usize, loaded: bool) -> bool {
        cpu_is_sooner(&[chunks], threads, loaded)[0]
    }

    #[test]
    fn a_few_rows_stay_on_the_cpu_and_many_do_not() {
        let codecs = [Codec::None, Codec::Snappy, Codec::Lz4Raw, Codec::Zstd];
        for codec in codecs {
            for bytes in [1, 4, 8] {
                for threads in [1, 16] {
                    for loaded in [false, true] {
                        let few = chunks(1, 5_000, bytes, codec);
                        assert!(sooner(few, threads, loaded), "{codec:?}");
                        let many = chunks(100, 1 << 20, bytes, codec);
                        assert!(!sooner(many, threads, loaded), "{codec:?}");
                    }
                }
            }
        }
        assert!(sooner(vec![], 16, true));
    }

    #[test]
    fn kernels_that_are_not_loaded_and_many_threads_speak_for_the_cpu() {
        let some = || chunks(16, 20_000, 4, Codec::Snappy);
        assert!(sooner(some(), 4, false));
        assert!(!sooner(some(), 4, true));
        assert!(sooner(some(), 16, true));
        let strings = |plain_strings| {
            let mut some = chunks(4, 15_000, 40, Codec::None);
            some.iter_mut()
                .for_each(|c| c.plain_strings = plain_strings);
            sooner(some, 4, true)
        };
        assert!(strings(false) && !strings(true));
    }

    #[test]
    fn columns_load_the_kernels_together() {
        let some = || chunks(16, 30_000, 4, Codec::Snappy);
        let none = chunks(1, 5_000, 4, Codec::Snappy);
        assert!(sooner(some(), 4, false));
        let columns: Vec<_> = [some(), none]
            .into_iter()
            .chain((0..5).map(|_| some()))
            .collect();
        let mut wanted = vec![false; 7];
        wanted[1] = true;
        assert_eq!(cpu_is_sooner(&columns, 4, false), wanted);
    }
}
