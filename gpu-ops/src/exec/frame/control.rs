//! The control words of a run: what kernels report to the host.

use std::sync::Arc;

use crate::codegen::{CONTROL_WORDS, ControlWord};
use crate::device::{DevicePtr, Stream};
use crate::error::{ArithmeticFault, GpuError, Result};
use crate::memory::DeviceBuffer;
use crate::primitives::Rooms;

/// The words lie in a buffer that may hold other things before and behind them: those that generated kernels know, and then
/// one a result that only hand-written ones write ([`Control::largest`]).
pub(in crate::exec) struct Control {
    buffer: Arc<DeviceBuffer>,
    offset: usize,
    words: usize,
}

impl Control {
    /// Bytes of the words of `results` results and the fault word, rounded up to 256.
    pub(in crate::exec) fn bytes(results: usize) -> usize {
        (words(results) * 8).next_multiple_of(256)
    }

    /// Zeroed words in `buffer` from byte `offset` on.
    pub(in crate::exec) fn new(buffer: Arc<DeviceBuffer>, offset: usize, results: usize) -> Self {
        Self {
            buffer,
            offset,
            words: words(results),
        }
    }

    /// The buffer that holds the words, and where in it they begin.
    pub(in crate::exec) fn location(&self) -> (&DeviceBuffer, usize) {
        (&self.buffer, self.offset)
    }

    /// Number of words.
    pub(in crate::exec) fn words(&self) -> usize {
        self.words
    }

    /// Address of the first word.
    pub(in crate::exec) fn address(&self) -> DevicePtr {
        DevicePtr(self.buffer.ptr().0 + self.offset as u64)
    }

    /// Address of one word.
    pub(in crate::exec) fn word_address(&self, result: usize, word: ControlWord) -> DevicePtr {
        let index = result * CONTROL_WORDS + word as usize;
        DevicePtr(self.address().0 + index as u64 * 8)
    }

    /// One of the words that were read.
    pub(in crate::exec) fn word(words: &[u64], result: usize, word: ControlWord) -> u64 {
        words
            .get(result * CONTROL_WORDS + word as usize)
            .copied()
            .unwrap_or(0)
    }

    /// Address of the word that becomes the rows of a result's largest partitions: `u32` each, in the end and after the first
    /// pass.
    pub(in crate::exec) fn largest_address(&self, result: usize) -> DevicePtr {
        DevicePtr(self.address().0 + (fault_word(self.words) + 1 + result) as u64 * 8)
    }

    /// Rows of the largest partitions, of the words that were read; zeros when nobody looked.
    pub(in crate::exec) fn largest(words: &[u64], result: usize) -> Rooms {
        let word = words
            .get(fault_word(words.len()) + 1 + result)
            .copied()
            .unwrap_or(0);
        Rooms {
            first: (word >> 32) as u32,
            last: word as u32,
        }
    }

    /// Wait for the device and read all words.
    ///
    /// # Errors
    /// [`GpuError::Arithmetic`] when a kernel reported a fault.
    pub(in crate::exec) fn read(&self, stream: &Stream) -> Result<Vec<u64>> {
        let words = self
            .buffer
            .download_values(stream, self.offset, self.words)?;
        Self::check(&words)?;
        Ok(words)
    }

    /// Set one word.
    pub(in crate::exec) fn set(
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
    pub(in crate::exec) fn check(words: &[u64]) -> Result<()> {
        let word = words.get(fault_word(words.len())).copied();
        match ArithmeticFault::of_word(word.unwrap_or(0)) {
            None => Ok(()),
            Some(fault) => Err(GpuError::Arithmetic(fault)),
        }
    }
}

/// Words of so many results.
fn words(results: usize) -> usize {
    results * (CONTROL_WORDS + 1) + 1
}

/// Which of so many words is the fault word.
fn fault_word(words: usize) -> usize {
    words.saturating_sub(1) / (CONTROL_WORDS + 1) * CONTROL_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_results_the_fault_and_partitions_lie_behind_each_other() {
        for results in 0..4 {
            let all = words(results);
            assert_eq!(fault_word(all), results * CONTROL_WORDS);
            let mut read = vec![0; all];
            assert!(Control::check(&read).is_ok());
            for result in 0..results {
                read[results * CONTROL_WORDS + 1 + result] = 7 << 32 | result as u64;
            }
            assert!(Control::check(&read).is_ok(), "{results}");
            for result in 0..results {
                let rooms = Control::largest(&read, result);
                assert_eq!((rooms.first, rooms.last), (7, result as u32));
            }
            read[results * CONTROL_WORDS] = 1;
            assert!(Control::check(&read).is_err(), "{results}");
        }
    }
}
