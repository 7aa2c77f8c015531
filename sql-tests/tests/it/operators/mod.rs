//! Every operator of tile pipelines on the emulator against plain DataFusion, type by type and edge by edge.
//!
//! Each query that differs from all others costs one compilation, so a query carries many expressions.

mod arithmetic;
mod calendar;
mod casts;
mod combinations;
mod computed;
mod conditional;
mod cpu;
mod generated;
mod guards;
mod logic;
mod math;
mod numbers;
mod outputs;
mod placement;
mod runs;
mod sizes;
mod sought;
mod strings;
pub(crate) mod support;
mod types;
mod zones;
