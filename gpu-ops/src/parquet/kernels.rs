//! The compiled kernels over pages, and their launches.

use warpline_cuda::KernelArgs;
use warpline_cuda::kernels::{
    self, PARQUET_SHARED_BYTES, PARQUET_TAG_BYTES, PARQUET_THREADS, ParquetArgs, ParquetPlaceArgs,
};

use crate::column::{FactsKernels, FinishKernels, TextKernels, map};
use crate::device::{Device, Kernel, LaunchConfig, Stream};
use crate::error::{GpuError, Result};

/// Most blocks of a launch; pages beyond come in strides.
const MOST_BLOCKS: u64 = 1 << 16;

/// All kernels that make a column of the pages of its chunks.
#[derive(Debug)]
pub(crate) struct Kernels {
    decompress: Kernel,
    decode: Kernel,
    index_strings: Kernel,
    place_strings: Kernel,
    pub(crate) finish: FinishKernels,
}

impl Kernels {
    /// # Errors
    /// [`crate::GpuError::Compile`] and [`crate::GpuError::Device`].
    pub(crate) fn compile(device: &dyn Device) -> Result<Self> {
        let sources = vec![
            ("parquet_decompress", kernels::parquet_decompress()),
            ("parquet_decode", kernels::parquet_decode()),
            ("parquet_strings", kernels::parquet_strings()),
            ("parquet_finish", kernels::parquet_finish()),
            ("column_facts", kernels::column_facts()),
            ("column_texts", kernels::column_texts()),
            ("strings_gather", kernels::strings_gather()),
        ];
        // The longest takes half a second to compile when nothing is on disk.
        let modules = map(sources, |(name, source)| {
            device.compile(name, &source).map(|(module, _)| module)
        })?;
        let modules = modules.into_iter().collect::<Result<Vec<_>>>()?;
        let [decompress, decode, strings, finish, facts, texts, gather] = modules.as_slice() else {
            return Err(GpuError::Internal("a module was not compiled".into()));
        };
        Ok(Self {
            decompress: device.kernel(decompress, "parquet_decompress")?,
            decode: device.kernel(decode, "parquet_decode")?,
            index_strings: device.kernel(strings, "parquet_index_strings")?,
            place_strings: device.kernel(strings, "parquet_place_strings")?,
            finish: FinishKernels {
                facts: FactsKernels::of(device, facts)?,
                narrow: device.kernel(finish, "parquet_narrow")?,
                remap: device.kernel(finish, "parquet_remap")?,
                validity: device.kernel(finish, "parquet_validity")?,
                shift: device.kernel(strings, "parquet_shift_ends")?,
                texts: TextKernels::of(device, texts, gather)?,
            },
        })
    }

    /// Queue the decompression of pages: a warp for each.
    ///
    /// # Safety
    /// As [`Device::launch`]: `args` names live memory, as [`ParquetArgs`] says.
    pub(super) unsafe fn decompress(
        &self,
        device: &dyn Device,
        stream: &Stream,
        args: &ParquetArgs,
    ) -> Result<()> {
        let warps = u64::from(PARQUET_THREADS / 32);
        let config = LaunchConfig {
            grid: args.page_count.div_ceil(warps).min(MOST_BLOCKS) as u32,
            block: PARQUET_THREADS,
            shared_bytes: PARQUET_TAG_BYTES,
        };
        // SAFETY: passed on to the caller.
        unsafe { device.launch(stream, &self.decompress, config, args.as_bytes()) }
    }

    /// Queue the decoding of pages: a block for each. Strings of dictionaries come before.
    ///
    /// # Safety
    /// As [`Kernels::decompress`].
    pub(super) unsafe fn decode(
        &self,
        device: &dyn Device,
        stream: &Stream,
        args: &ParquetArgs,
        dictionaries_of_strings: bool,
    ) -> Result<()> {
        let config = blocks(args.page_count);
        let index = dictionaries_of_strings.then_some(&self.index_strings);
        for kernel in index.into_iter().chain([&self.decode]) {
            // SAFETY: passed on to the caller.
            unsafe { device.launch(stream, kernel, config, args.as_bytes())? };
        }
        Ok(())
    }

    /// Queue the copies of strings: a block for each page.
    ///
    /// # Safety
    /// As [`Kernels::decompress`]; the pages are those that were decoded.
    pub(super) unsafe fn place_strings(
        &self,
        device: &dyn Device,
        stream: &Stream,
        args: &ParquetPlaceArgs,
    ) -> Result<()> {
        let config = blocks(args.page_count);
        // SAFETY: passed on to the caller.
        unsafe { device.launch(stream, &self.place_strings, config, args.as_bytes()) }
    }
}

/// A block for each page.
fn blocks(pages: u64) -> LaunchConfig {
    LaunchConfig {
        grid: pages.min(MOST_BLOCKS) as u32,
        block: PARQUET_THREADS,
        shared_bytes: PARQUET_SHARED_BYTES,
    }
}
