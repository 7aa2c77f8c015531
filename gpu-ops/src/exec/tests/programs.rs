//! Kernels of a few lines in the places of generated ones.

use crate::codegen::{
    CONTROL_WORDS, ColumnPart, KernelProgram, Part, Slot, SortProgram, SourceRows,
};

/// Every row of the table `scan` whose value leaves no remainder by `divisor`, `times` times, into rows `into`.
pub(super) fn filter(scan: usize, into: usize, divisor: u32, times: u32) -> KernelProgram {
    let cap = Slot::Capacity(into);
    let column = Slot::Result(into, Part::Column(0));
    super::kernel(
        SourceRows::Scan(scan),
        Some(into),
        &[Slot::SourceRows, cap],
        &[
            (Slot::Control, "u64*"),
            (Slot::Scan(0, ColumnPart::Data), "const u32*"),
            (column, "u32*"),
        ],
        &format!(
            "  for (u64 i = first; i < args.rows; i += stride) {{
                 if (args.c0[i] % {divisor}u != 0 || args.c0[i] == 0xFFFFFFFFu) continue;
                 for (u32 t = 0; t < {times}; ++t) {{
                   const u64 at = atomicAdd(args.control + {}, (u64)1);
                   if (at < args.{cap}) args.{column}[at] = args.c0[i];
                 }}
               }}",
            into * CONTROL_WORDS
        ),
    )
}

/// Rows of `from` into rows `into`, plus `add`.
pub(super) fn copy(from: usize, into: usize, add: u32) -> KernelProgram {
    let (cap_from, cap) = (Slot::Capacity(from), Slot::Capacity(into));
    let (source, target) = (
        Slot::Result(from, Part::Column(0)),
        Slot::Result(into, Part::Column(0)),
    );
    super::kernel(
        SourceRows::Rows(from),
        Some(into),
        &[cap_from, cap],
        &[
            (Slot::Control, "u64*"),
            (source, "const u32*"),
            (target, "u32*"),
        ],
        &format!(
            "  const u64 rows = bounded_rows(args.control + {}, args.{cap_from});
               for (u64 i = first; i < rows; i += stride) {{
                 const u64 at = atomicAdd(args.control + {}, (u64)1);
                 if (at < args.{cap}) args.{target}[at] = args.{source}[i] + {add}u;
               }}",
            from * CONTROL_WORDS,
            into * CONTROL_WORDS
        ),
    )
}

/// Group the values of the table `scan` modulo `modulus` in a hash table and count; see [`groups`].
pub(super) fn count(scan: usize, into: usize, modulus: u32) -> KernelProgram {
    let (slots, keys, state) = (
        Slot::TableSlots(into),
        Slot::Result(into, Part::Keys),
        Slot::Result(into, Part::State),
    );
    super::kernel(
        SourceRows::Scan(scan),
        Some(into),
        &[Slot::SourceRows, slots],
        &[
            (Slot::Control, "u64*"),
            (Slot::Scan(0, ColumnPart::Data), "const u32*"),
            (keys, "u64*"),
            (state, "u64*"),
        ],
        &format!(
            "  for (u64 i = first; i < args.rows; i += stride) {{
                 const u64 slot = find_or_insert(args.{keys}, args.{slots} - 1, args.c0[i] % {modulus}u, 8);
                 if (slot == WL_NO_SLOT) store_relaxed(args.control + {}, (u64)1);
                 else atomicAdd(args.{state} + slot, (u64)1);
               }}",
            into * CONTROL_WORDS + 1
        ),
    )
}

/// The counts of the groups of `from` into rows `into`.
pub(super) fn groups(from: usize, into: usize) -> KernelProgram {
    let (cap, state) = (Slot::Capacity(into), Slot::Result(from, Part::State));
    let column = Slot::Result(into, Part::Column(0));
    super::kernel(
        SourceRows::Slots(from),
        Some(into),
        &[Slot::SourceRows, cap],
        &[
            (Slot::Control, "u64*"),
            (state, "const u64*"),
            (column, "u32*"),
        ],
        &format!(
            "  for (u64 i = first; i < args.rows; i += stride) {{
                 if (args.{state}[i] == 0) continue;
                 const u64 at = atomicAdd(args.control + {}, (u64)1);
                 if (at < args.{cap}) args.{column}[at] = (u32)args.{state}[i];
               }}",
            into * CONTROL_WORDS
        ),
    )
}

/// Build: the values of table `scan` as payload, keyed by the value modulo `modulus`.
pub(super) fn build(scan: usize, into: usize, modulus: u32) -> KernelProgram {
    let cap = Slot::Capacity(into);
    let (column, word) = (
        Slot::Result(into, Part::Column(0)),
        Slot::Result(into, Part::KeyWord(0)),
    );
    super::kernel(
        SourceRows::Scan(scan),
        Some(into),
        &[Slot::SourceRows, cap],
        &[
            (Slot::Control, "u64*"),
            (Slot::Scan(0, ColumnPart::Data), "const u32*"),
            (column, "u32*"),
            (word, "u64*"),
        ],
        &format!(
            "  for (u64 i = first; i < args.rows; i += stride) {{
                 if (args.c0[i] == 0xFFFFFFFFu) continue;
                 const u64 at = atomicAdd(args.control + {}, (u64)1);
                 if (at >= args.{cap}) continue;
                 args.{column}[at] = args.c0[i];
                 args.{word}[at] = args.c0[i] % {modulus}u;
               }}",
            into * CONTROL_WORDS
        ),
    )
}

/// Probe the index `index` with the values of table `scan` below `below`, for [`pairs`]; `hash` tells how it is addressed.
pub(super) fn matches(
    scan: usize,
    into: usize,
    index: usize,
    below: u32,
    hash: bool,
) -> KernelProgram {
    let (cap, slots) = (Slot::Capacity(into), Slot::TableSlots(index));
    let names = [
        Slot::Result(into, Part::Column(0)),
        Slot::Result(into, Part::Start),
        Slot::Result(into, Part::Length),
        Slot::Result(index, Part::Offsets),
        Slot::Result(index, Part::Keys),
    ];
    let mut sizes = vec![Slot::SourceRows, cap];
    let mut pointers = vec![
        (Slot::Control, "u64*"),
        (Slot::Scan(0, ColumnPart::Data), "const u32*"),
        (names[0], "u32*"),
        (names[1], "u32*"),
        (names[2], "u32*"),
        (names[3], "const u32*"),
    ];
    if hash {
        sizes.push(slots);
        pointers.push((names[4], "const u64*"));
    }
    let find = if hash {
        format!("hash_find(args.r{index}keys, args.{slots} - 1, args.c0[i])")
    } else {
        "args.c0[i]".to_string()
    };
    super::kernel(
        SourceRows::Scan(scan),
        Some(into),
        &sizes,
        &pointers,
        &format!(
            "  for (u64 i = first; i < args.rows; i += stride) {{
                 if (args.c0[i] >= {below}u) continue;
                 const u64 slot = {find};
                 if (slot == WL_NO_SLOT) continue;
                 const u32 start = args.r{index}offsets[slot], end = args.r{index}offsets[slot + 1];
                 if (start == end) continue;
                 const u64 at = atomicAdd(args.control + {}, (u64)1);
                 if (at >= args.{cap}) continue;
                 args.r{into}c0[at] = args.c0[i];
                 args.r{into}start[at] = start;
                 args.r{into}len[at] = end - start;
               }}",
            into * CONTROL_WORDS
        ),
    )
}

/// The payload of every pair of `from` with `index` into rows `into`.
pub(super) fn pairs(from: usize, index: usize, into: usize) -> KernelProgram {
    let (cap_from, cap) = (Slot::Capacity(from), Slot::Capacity(into));
    let names = [
        Slot::Result(from, Part::Pairs),
        Slot::Result(from, Part::Start),
        Slot::Result(index, Part::Entries),
        Slot::Result(index, Part::Column(0)),
        Slot::Result(into, Part::Column(0)),
    ];
    super::kernel(
        SourceRows::Pairs(from),
        Some(into),
        &[cap_from, cap],
        &[
            (Slot::Control, "u64*"),
            (names[0], "const u64*"),
            (names[1], "const u32*"),
            (names[2], "const u32*"),
            (names[3], "const u32*"),
            (names[4], "u32*"),
        ],
        &format!(
            "  const u64 parents = bounded_rows(args.control + {}, args.{cap_from});
               const u64 total = args.r{from}pairs[parents];
               for (u64 i = first; i < total; i += stride) {{
                 const u64 p = pair_parent(args.r{from}pairs, parents, i);
                 const u32 entry = args.r{index}rows[args.r{from}start[p] + (u32)(i - args.r{from}pairs[p])];
                 const u64 at = atomicAdd(args.control + {}, (u64)1);
                 if (at < args.{cap}) args.r{into}c0[at] = args.r{index}c0[entry];
               }}",
            from * CONTROL_WORDS,
            into * CONTROL_WORDS
        ),
    )
}

/// Rows `from` in descending order into `into`.
pub(super) fn sort(from: usize, into: usize, skip: u64, fetch: Option<u64>) -> SortProgram {
    let (source, target) = (
        Slot::Result(from, Part::Column(0)),
        Slot::Result(into, Part::Column(0)),
    );
    let (word, order) = (
        Slot::Result(into, Part::KeyWord(0)),
        Slot::Result(into, Part::Order),
    );
    let keys = super::kernel(
        SourceRows::Rows(from),
        Some(into),
        &[Slot::SourceRows],
        &[(Slot::Control, "u64*"), (source, "const u32*"), (word, "u64*")],
        &format!(
            "  const u64 rows = bounded_rows(args.control + {}, args.rows);
               for (u64 i = first; i < rows; i += stride) args.{word}[i] = 0xFFFFFFFFu - args.{source}[i];",
            from * CONTROL_WORDS
        ),
    );
    let gather = super::kernel(
        SourceRows::Rows(from),
        Some(into),
        &[Slot::SourceRows, Slot::Skip, Slot::Fetch],
        &[
            (Slot::Control, "u64*"),
            (source, "const u32*"),
            (target, "u32*"),
            (order, "const u32*"),
        ],
        &format!(
            "  const u64 all = bounded_rows(args.control + {}, args.rows);
               const u64 left = all > args.skip ? all - args.skip : 0;
               const u64 rows = left < args.fetch ? left : args.fetch;
               if (first == 0) args.control[{}] = rows;
               for (u64 i = first; i < rows; i += stride) args.{target}[i] = args.{source}[args.{order}[args.skip + i]];",
            from * CONTROL_WORDS,
            into * CONTROL_WORDS
        ),
    );
    SortProgram {
        rows: from,
        into,
        keys: Some(keys),
        word_bits: vec![32],
        partition: vec![0],
        gather,
        skip,
        fetch,
        window: None,
    }
}

/// The number of every third row of the table `scan` into rows `into`, NULL for the others.
pub(super) fn row_numbers(scan: usize, into: usize) -> KernelProgram {
    let (cap, column, valid) = (
        Slot::Capacity(into),
        Slot::Result(into, Part::Column(0)),
        Slot::Result(into, Part::Valid(0)),
    );
    super::kernel(
        SourceRows::Scan(scan),
        Some(into),
        &[Slot::SourceRows, cap],
        &[(Slot::Control, "u64*"), (column, "u32*"), (valid, "u8*")],
        &format!(
            "  if (first == 0) args.control[{}] = args.rows;
               for (u64 i = first; i < args.rows && i < args.{cap}; i += stride) {{
                 args.{valid}[i] = i % 3 == 0;
                 args.{column}[i] = i % 3 == 0 ? (u32)i : 0;
               }}",
            into * CONTROL_WORDS
        ),
    )
}
