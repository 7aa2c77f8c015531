//! Host memory of the operators that the CPU runs.
//!
//! DataFusion's operators take what they want unless they are told otherwise, and the system ends a process that wants more than there is.
//! With a bound, sorts and groups spill, and what cannot fails alone.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::{Arc, LazyLock};

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
    TrackConsumersPool,
};

use warpline_gpu::memory::memory_of_host;

use crate::size::ByteSize;

/// So many parts of the machine's memory are theirs, of [`OF`].
const PARTS: usize = 3;
const OF: usize = 4;

/// Consumers that an error names.
const NAMED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(2);

/// The pool of this process, of three quarters of the machine's memory, or of what its control group may use, for operators of the CPU:
/// all sessions share it. Whoever wants more is told which setting raises it, `datafusion.runtime.memory_limit`, which puts another pool
/// in its place.
pub fn pool() -> Arc<dyn MemoryPool> {
    static POOL: LazyLock<Arc<CpuPool>> = LazyLock::new(|| {
        let bytes = memory_of_host() / OF * PARTS;
        Arc::new(CpuPool {
            pool: TrackConsumersPool::new(GreedyMemoryPool::new(bytes), NAMED),
            bytes,
        })
    });
    Arc::clone(&POOL) as _
}

#[derive(Debug)]
struct CpuPool {
    pool: TrackConsumersPool<GreedyMemoryPool>,
    bytes: usize,
}

impl fmt::Display for CpuPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for CpuPool {
    fn name(&self) -> &str {
        "cpu"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.pool
            .try_grow(reservation, additional)
            .map_err(|error| match error {
                DataFusionError::ResourcesExhausted(cause) => {
                    DataFusionError::ResourcesExhausted(format!(
                        "{cause}. Operators of the CPU may take {} of host memory together: SET datafusion.runtime.memory_limit \
                         to more, or join and group fewer rows at once",
                        ByteSize(self.bytes)
                    ))
                }
                other => other,
            })
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused_with_the_remedy() {
        let pool = pool();
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(1 << 20).unwrap();
        let MemoryLimit::Finite(bytes) = pool.memory_limit() else {
            panic!("no limit");
        };
        let error = reservation.try_grow(bytes).unwrap_err();
        assert!(matches!(error, DataFusionError::ResourcesExhausted(_)));
        let message = error.to_string();
        assert!(
            message.contains("datafusion.runtime.memory_limit"),
            "{message}"
        );
        assert_eq!(reservation.size(), 1 << 20);
    }
}
