//! The tables of `group.cuh` that a block has in shared memory: each key has one slot, whichever lanes bring it.

use std::collections::BTreeMap;

use warpline_cuda::{DevicePtr, KernelArgs, kernel_args};
use warpline_gpu::device::LaunchConfig;

use super::{Machine, Numbers, machines};

kernel_args! {
    /// Keys, and for each the slot it was given and the key found there afterwards.
    struct TableArgs {
        words: DevicePtr as "const u64*",
        slots: DevicePtr as "u32*",
        found: DevicePtr as "u64*",
        n: u64,
    }
}

const THREADS: u32 = 96;
const BLOCKS: u32 = 3;
const SLOTS: u64 = 64;
const NONE: u32 = u32::MAX;

/// Each block takes all keys into a table of its own: by `block_slot`, or by `front_slot`.
fn source(key: &str, front: bool) -> String {
    let zero = match key {
        "u128" => "words[i * 2] = 0; words[i * 2 + 1] = 0;",
        _ => "shared.table[i] = 0;",
    };
    // All but the low half tells keys of 16 bytes apart as well.
    let of = match key {
        "u128" => "((u128)(word & 7) << 64 | (word >> 3))",
        _ => "(Key)word",
    };
    let place = match front {
        true => "front_slot(shared.table, 64u, (Key)(key + 1))",
        false => "block_slot(shared.table, 64u, key, 2u)",
    };
    format!(
        "#include \"group.cuh\"\n{}
typedef {key} Key;
struct Table {{ alignas(16) Key table[64]; }};
WL_KERNEL(tables, TableArgs, args) {{
  WL_SHARED(Table, shared);
  u64* const words = (u64*)shared.table; (void)words;
  for (u32 i = threadIdx.x; i < 64; i += blockDim.x) {{ {zero} }}
  __syncthreads();
  for (u64 i = threadIdx.x; i < args.n; i += blockDim.x) {{
    const u64 word = args.words[i];
    const Key key = {of};
    args.slots[blockIdx.x * args.n + i] = {place};
  }}
  __syncthreads();
  for (u64 i = threadIdx.x; i < args.n; i += blockDim.x) {{
    const u32 slot = args.slots[blockIdx.x * args.n + i];
    const u64 word = args.words[i];
    const Key key = {of};
    if (slot != WL_NO_NUMBER) args.found[blockIdx.x * args.n + i] = block_key(shared.table, slot) == key;
  }}
}}
",
        TableArgs::CUDA
    )
}

/// The slots that each block gave the keys, after checks that hold for every table.
fn slots(machine: &Machine, source: &str, keys: &[u64]) -> Vec<Vec<u32>> {
    let n = keys.len();
    let words = machine.upload(keys);
    let slots = machine.space(n * BLOCKS as usize * 4);
    let found = machine.upload(&vec![0u64; n * BLOCKS as usize]);
    let args = TableArgs {
        words: words.ptr(),
        slots: slots.ptr(),
        found: found.ptr(),
        n: n as u64,
    };
    let (kernel, _) = machine.runtime.kernel("tables", source).unwrap();
    let config = LaunchConfig {
        grid: BLOCKS,
        block: THREADS,
        shared_bytes: SLOTS as usize * 16,
    };
    let device = machine.runtime.device();
    unsafe { device.launch(&machine.stream, &kernel, config, args.as_bytes()) }.unwrap();
    let slots = machine.read::<u32>(&slots, n * BLOCKS as usize);
    let found = machine.read::<u64>(&found, n * BLOCKS as usize);
    for (slots, found) in slots.chunks(n).zip(found.chunks(n)) {
        let mut keys_of = BTreeMap::new();
        for ((slot, found), key) in slots.iter().zip(found).zip(keys) {
            if *slot != NONE {
                assert_eq!(*found, 1, "{}: the slot of {key}", machine.name);
                assert_eq!(*keys_of.entry(*slot).or_insert(*key), *key);
            }
        }
        let mut slots_of = BTreeMap::new();
        for (slot, key) in slots.iter().zip(keys) {
            let one = *slots_of.entry(*key).or_insert(*slot);
            // A key that found its places taken finds them taken ever after.
            assert_eq!(one, *slot, "{}: {key} has two slots", machine.name);
        }
    }
    slots.chunks(n).map(<[u32]>::to_vec).collect()
}

fn placed(keys: &[u64], slots: &[u32]) -> usize {
    let taken = keys.iter().zip(slots).filter(|(_, slot)| **slot != NONE);
    taken
        .map(|(key, _)| key)
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

#[test]
fn each_key_of_a_block_has_one_slot() {
    for machine in machines() {
        for key in ["u32", "u64", "u128"] {
            let source = source(key, false);
            let mut numbers = Numbers(11);
            // Few, as many as slots, and more than there are.
            for different in [1, 9, SLOTS, 150] {
                let keys: Vec<u64> = (0..700).map(|_| numbers.draw() % different).collect();
                let distinct = placed(&keys, &vec![0; keys.len()]);
                for slots in slots(&machine, &source, &keys) {
                    let most = distinct.min(SLOTS as usize);
                    assert_eq!(placed(&keys, &slots), most, "{}: {key}", machine.name);
                }
            }
        }
    }
}

#[test]
fn frequent_keys_have_slots_in_front() {
    for machine in machines() {
        for key in ["u32", "u64"] {
            let source = source(key, true);
            let mut numbers = Numbers(12);
            // A key has the choice of four slots: a few keys have all a place, many fill the table.
            let few: Vec<u64> = (0..500).map(|_| numbers.draw() % 4).collect();
            for slots in slots(&machine, &source, &few) {
                assert_eq!(placed(&few, &slots), 4, "{}: {key}", machine.name);
            }
            let many: Vec<u64> = (0..2000).map(|_| numbers.draw() % 1000).collect();
            for slots in slots(&machine, &source, &many) {
                let places = placed(&many, &slots);
                assert_eq!(places, SLOTS as usize, "{}: {key}", machine.name);
            }
        }
    }
}
