//! Warpline's devices, memory, columns and GPU operators.
//!
//! How a fragment of a plan gets its answer:
//!
//! 1. [`tables`] makes the columns it reads resident: Arrow batches become [`mod@column`]s in the narrowest
//!    exact encoding, kept between queries and evicted least recently used under pressure.
//! 2. [`codegen`] turns each [`pipeline`] and the encodings at hand into one CUDA C++ kernel. Every
//!    integer, decimal and date is computed in 32, 64 or 128 bits, whichever provably holds its values.
//! 3. [`runtime`] compiles it once (in memory, then on disk) for its [`device`]: a CUDA GPU, or the emulator
//!    that runs the same source on the CPU.
//! 4. [`exec`] allocates from the budgeted pool of [`memory`], launches, brings the groups back and
//!    finishes them as Arrow arrays. [`exec::GpuFragmentExec`] is the node in DataFusion's plan.
//!
//! A [`query`](mod@query) that is stopped queues nothing more; one that gets no memory climbs the ladder of [`exec`]; and
//! any call of a device can be made to fail, for tests of all that ([`device::faulty`]).
//!
//! While a [`trace`] is taken, all that the host and the streams do is noted for a timeline.
//!
//! [`algorithm`] names the ways of joining, grouping and balancing. [`expr`] holds the typed expressions in between. Nothing here decides *what* runs on the device;
//! that is the planner's part, which reaches in through [`pipeline::PlacementPolicy`].

pub mod algorithm;
pub mod calibrate;
pub mod codegen;
pub mod column;
pub mod counters;
pub mod device;
pub mod device_batch;
pub mod error;
pub mod exec;
pub mod expr;
pub mod graph;
pub mod machine;
pub mod memory;
pub mod names;
pub mod parquet;
pub mod pipeline;
pub mod plan_node;
pub mod primitives;
pub mod query;
pub mod runtime;
mod stop;
pub mod synthetic;
pub mod tables;
pub mod trace;

pub use error::{GpuError, Result};
