//! Data of all other folders: values and scopes, pipelines as statements, layouts of results, and the program.
//!
//! | | |
//! |---|---|
//! | `range`, `value`, `layout`, `scope`, `key` | a value at a row, how a column of a result keeps it, where a column's values come from, how a key is packed |
//! | `accumulator`, `aggregates` | what the state of a group holds |
//! | `slot`, `arguments`, `state` | the argument struct of a kernel, and what all of its statements share |
//! | `pipeline`, `context` | a pipeline between graph and text, and what the pipelines of a program share until then |
//! | `results`, `program` | the contract with the executor: how results lie in memory, and the kernels in launch order |
//! | `refusal` | what kernels do not run |

pub(in crate::codegen) mod accumulator;
pub(in crate::codegen) mod aggregates;
pub(in crate::codegen) mod arguments;
pub(in crate::codegen) mod context;
pub(in crate::codegen) mod key;
pub(in crate::codegen) mod layout;
pub(in crate::codegen) mod pipeline;
pub(in crate::codegen) mod program;
pub(in crate::codegen) mod range;
pub(in crate::codegen) mod refusal;
pub(in crate::codegen) mod results;
pub(in crate::codegen) mod scope;
pub(in crate::codegen) mod slot;
pub(in crate::codegen) mod state;
pub(in crate::codegen) mod value;
