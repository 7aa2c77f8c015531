//! The kernels that make tables from row numbers and check answers over them: source text and argument structs.

use crate::DevicePtr;
use crate::kernel_args;

kernel_args! {
    /// What the keys of rows are made of: each number in turn (no bands), or numbers drawn from bands of ranks.
    pub struct SyntheticNumbers {
        /// Two words a band, and two that end the list: where it begins among 2^64 draws, and its first rank from 0.
        pub bands: DevicePtr as "const u64*",
        /// Bands; 0: each number in turn.
        pub band_count: u64,
        /// Without bands the rows; with bands the numbers that ranks are spread over.
        pub range: u64,
        /// Without bands: different numbers.
        pub distinct: u64,
        /// Without bands: numbers are multiples of this.
        pub stride: u64,
        /// Makes other draws and other payload.
        pub seed: u64,
    }

    /// Arguments of `synthetic_column`.
    pub struct SyntheticColumnArgs {
        /// The rows.
        pub numbers: SyntheticNumbers,
        /// Room for the codes.
        pub out: DevicePtr as "void*",
        /// Rows.
        pub rows: u64,
        /// A key's code is its number times this, …
        pub factor: u64,
        /// … these bits of it.
        pub mask: u64,
        /// The payload column, or all ones for the key.
        pub column: u32,
        /// Bytes a code: 1, 2, 4, 8 or 16.
        pub width: u32,
    }

    /// Arguments of `synthetic_sketch`.
    pub struct SyntheticSketchArgs {
        /// Codes.
        pub data: DevicePtr as "const void*",
        /// A set of hashes, 0 where free.
        pub slots: DevicePtr as "u64*",
        /// The least and the greatest code.
        pub ends: DevicePtr as "u64*",
        /// Rows.
        pub rows: u64,
        /// Added to codes.
        pub base: u64,
        /// Hashes below this are kept.
        pub bound: u64,
        /// Slots less one.
        pub mask: u64,
        /// Bytes a code.
        pub width: u64,
    }

    /// Arguments of `synthetic_sum`.
    pub struct SyntheticSumArgs {
        /// Four words a column.
        pub columns: DevicePtr as "const u64*",
        /// Rows and their sum are added here.
        pub sums: DevicePtr as "u64*",
        /// Columns.
        pub column_count: u64,
        /// Rows.
        pub rows: u64,
    }

    /// Arguments of `synthetic_join`.
    pub struct SyntheticJoinArgs {
        /// The build side.
        pub build: SyntheticNumbers,
        /// The probing side.
        pub probe: SyntheticNumbers,
        /// Pairs and their sum are added here.
        pub sums: DevicePtr as "u64*",
        /// Rows of the probing side.
        pub probe_rows: u64,
        /// As for `synthetic_column`, …
        pub factor: u64,
        /// … likewise.
        pub mask: u64,
        /// Added to a key's code.
        pub base: u64,
        /// Four bits a column: the binary logarithm of its bytes.
        pub build_widths: u64,
        /// Likewise.
        pub probe_widths: u64,
        /// Payload columns.
        pub build_columns: u32,
        /// Likewise.
        pub probe_columns: u32,
    }

    /// Arguments of `synthetic_states`.
    pub struct SyntheticStatesArgs {
        /// The rows, drawn; their numbers are those of groups.
        pub numbers: SyntheticNumbers,
        /// A word a group and four a column of it.
        pub states: DevicePtr as "u64*",
        /// Rows.
        pub rows: u64,
        /// Four bits a column: the binary logarithm of its bytes.
        pub widths: u64,
        /// Payload columns.
        pub columns: u32,
        /// Keep least and greatest values?
        pub extremes: u32,
        /// Keep sums?
        pub totals: u32,
        /// Nothing.
        pub pad: u32,
    }

    /// Arguments of `synthetic_groups`.
    pub struct SyntheticGroupsArgs {
        /// As `synthetic_states` left them.
        pub states: DevicePtr as "u64*",
        /// Three words a result.
        pub results: DevicePtr as "const u64*",
        /// Groups and their sum are added here.
        pub sums: DevicePtr as "u64*",
        /// Results.
        pub result_count: u64,
        /// Groups.
        pub groups: u64,
        /// As for `synthetic_column`, …
        pub factor: u64,
        /// … likewise.
        pub mask: u64,
        /// Added to a key's code.
        pub base: u64,
        /// Payload columns of the states.
        pub columns: u32,
        /// Nothing.
        pub pad: u32,
    }
}

const SYNTHETIC: &str = include_str!("../../cuda/synthetic.cu");

/// Complete source of the module that makes and checks tables.
pub fn synthetic() -> String {
    let structs = [
        SyntheticNumbers::CUDA,
        SyntheticColumnArgs::CUDA,
        SyntheticSketchArgs::CUDA,
        SyntheticSumArgs::CUDA,
        SyntheticJoinArgs::CUDA,
        SyntheticStatesArgs::CUDA,
        SyntheticGroupsArgs::CUDA,
    ];
    format!("#include \"simt.cuh\"\n{}{SYNTHETIC}", structs.concat())
}
