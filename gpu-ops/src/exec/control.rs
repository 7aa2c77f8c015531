//! The control words of a run: what kernels report to the host.

use std::sync::Arc;

use crate::codegen::{CONTROL_WORDS, ControlWord};
use crate::device::{DevicePtr, Stream};
use crate::error::{ArithmeticFault, GpuError, Result};
use crate::memory::DeviceBuffer;

/// The words lie in a buffer that may hold other things before and behind them.
pub(super) struct Control {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
    words: usize,
}

impl Control {
    /// Bytes of the words of `results` results and the fault word, rounded up to 256.
    pub(super) fn bytes(results: usize) -> usize {
        ((results * CONTROL_WORDS + 1) * 8).next_multiple_of(256)
    }

    /// Zeroed words in `buffer` from byte `offset` on.
    pub(super) fn new(buffer: Arc<DeviceBuffer>, offset: usize, results: usize) -> Self {
        Self {
            buffer,
            offset,
            words: results * CONTROL_WORDS + 1,
        }
    }

    /// The buffer that holds the words, and where in it they begin.
    pub(super) fn location(&self) -> (&DeviceBuffer, usize) {
        (&self.buffer, self.offset)
    }

    /// Number of words.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Address of the first word.
    pub(super) fn address(&self) -> DevicePtr {
        DevicePtr(self.buffer.ptr().0 + self.offset as u64)
    }

    /// Address of one word.
    pub(super) fn word_address(&self, result: usize, word: ControlWord) -> DevicePtr {
        let index = result * CONTROL_WORDS + word as usize;
        DevicePtr(self.address().0 + index as u64 * 8)
    }

    /// One of the words that were read.
    pub(super) fn word(words: &[u64], result: usize, word: ControlWord) -> u64 {
        words
            .get(result * CONTROL_WORDS + word as usize)
            .copied()
            .unwrap_or(0)
    }

    /// Wait for the device and read all words.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`] when a kernel reported a fault.
    pub(super) fn read(&self, stream: &Stream) -> Result<Vec<u64>> {
        let words = self
            .buffer
            .download_values(stream, self.offset, self.words)?;
        Self::check(&words)?;
        Ok(words)
    }

    /// Set one word.
    pub(super) fn set(
        &self,
        stream: &Stream,
        result: usize,
        word: ControlWord,
        value: u64,
    ) -> Result<()> {
        let offset = self.offset + (result * CONTROL_WORDS + word as usize) * 8;
        self.buffer.upload_values(stream, offset, &[value])
    }

    /// The fault word as an error.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`].
    pub(super) fn check(words: &[u64]) -> Result<()> {
        Err(GpuError::Arithmetic(match words.last() {
            None | Some(0) => return Ok(()),
            Some(1) => ArithmeticFault::DivideByZero,
            Some(2) => ArithmeticFault::Overflow,
            Some(_) => ArithmeticFault::Cast,
        }))
    }
}
