//! The shapes of kernel that Warpline is made of, under every schedule.

use std::collections::HashMap;

use warpline_cuda::emulator::{LaunchConfig, Resident, Schedule};
use warpline_cuda::{DevicePtr, kernel_args};

use crate::support::{Numbers, compile, device, run};

/// The schedules, the random ones with several seeds.
fn schedules() -> Vec<Schedule> {
    let mut schedules = vec![Schedule::Ascending, Schedule::Descending];
    for seed in 1..4 {
        schedules.extend([Schedule::Random(seed), Schedule::RandomYields(seed)]);
    }
    schedules
}

kernel_args! {
    pub struct GroupArgs {
        pub keys: DevicePtr as "const u32*",
        pub values: DevicePtr as "const i32*",
        pub sums: DevicePtr as "u64*",
        pub n: u64,
    }
}

const GROUP_BY: &str = r"
#define GROUPS 37
struct Groups { u64 sums[GROUPS]; };

WL_KERNEL(group_by, GroupArgs, args) {
    WL_SHARED(Groups, shared);
    for (u32 g = threadIdx.x; g < GROUPS; g += blockDim.x) shared.sums[g] = 0;
    __syncthreads();
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += (u64)gridDim.x * blockDim.x)
        atomicAdd(&shared.sums[args.keys[i] % GROUPS], (u64)(i64)args.values[i]);
    __syncthreads();
    for (u32 g = threadIdx.x; g < GROUPS; g += blockDim.x) atomicAdd(&args.sums[g], shared.sums[g]);
}
";

#[test]
fn group_by_in_shared_memory() {
    let kernel = compile("group_by.cu", &[GroupArgs::CUDA], GROUP_BY)
        .kernel("group_by")
        .unwrap();
    let mut numbers = Numbers::new(1);
    let mut keys: Vec<u32> = (0..5000).map(|_| numbers.draw() as u32).collect();
    let mut values: Vec<i32> = (0..5000).map(|_| numbers.draw() as i32).collect();
    let mut want = vec![0u64; 37];
    for (key, value) in keys.iter().zip(&values) {
        let sum = &mut want[*key as usize % 37];
        *sum = sum.wrapping_add(i64::from(*value) as u64);
    }
    for schedule in schedules() {
        for block in [32, 96, 256] {
            let mut sums = vec![0u64; 37];
            let args = GroupArgs {
                keys: device(&mut keys),
                values: device(&mut values),
                sums: device(&mut sums),
                n: 5000,
            };
            run(
                &kernel,
                LaunchConfig::new(6, block).with_shared(37 * 8),
                &args,
                schedule,
            )
            .unwrap();
            assert_eq!(sums, want, "{schedule:?}, {block} threads");
        }
    }
}

kernel_args! {
    pub struct ScanArgs {
        pub input: DevicePtr as "const u32*",
        pub out: DevicePtr as "u64*",
        /// One word a tile: the top two bits say whether the rest is missing, the tile's sum or the prefix.
        pub states: DevicePtr as "u64*",
        pub ticket: DevicePtr as "u32*",
        pub n: u64,
    }
}

// The single-pass scan of Merrill and Garland (2016); tiles are handed out by ticket, so a block only ever
// waits for blocks that have started.
const SCAN: &str = r"
#define SUM ((u64)1 << 62)
#define PREFIX ((u64)2 << 62)
#define VALUE (SUM - 1)

struct Shared {
    BlockScratch<u64> scratch;
    u64 before;
    u32 tile;
};

WL_KERNEL(scan, ScanArgs, args) {
    WL_SHARED(Shared, shared);
    if (threadIdx.x == 0) shared.tile = atomicAdd(args.ticket, 1u);
    __syncthreads();
    u32 tile = shared.tile;
    u64 i = (u64)tile * blockDim.x + threadIdx.x;
    u64 v = i < args.n ? args.input[i] : 0, total;
    u64 inside = block_scan_exclusive_sum(v, shared.scratch, total);
    if (threadIdx.x == 0) {
        u64 before = 0;
        if (tile > 0) {
            store_release(&args.states[tile], SUM | total);
            for (u32 look = tile - 1;;) {
                u64 state = load_acquire(&args.states[look]);
                if (state == 0) {
                    spin_pause(20);
                    continue;
                }
                before += state & VALUE;
                if (state & PREFIX) break;
                --look;
            }
        }
        store_release(&args.states[tile], PREFIX | (before + total));
        shared.before = before;
    }
    __syncthreads();
    if (i < args.n) args.out[i] = shared.before + inside;
}
";

#[test]
fn scan_with_decoupled_look_back() {
    let kernel = compile("scan.cu", &[ScanArgs::CUDA], SCAN)
        .kernel("scan")
        .unwrap();
    let mut input: Vec<u32> = (0..3000u32).map(|i| i % 11).collect();
    let mut sum = 0u64;
    let want: Vec<u64> = input
        .iter()
        .map(|v| {
            let before = sum;
            sum += u64::from(*v);
            before
        })
        .collect();
    for schedule in schedules() {
        for resident in [Resident::Blocks(1), Resident::Blocks(5), Resident::All] {
            let (mut out, mut states, mut ticket) = (vec![0u64; 3000], vec![0u64; 47], [0u32]);
            let args = ScanArgs {
                input: device(&mut input),
                out: device(&mut out),
                states: device(&mut states),
                ticket: device(&mut ticket),
                n: 3000,
            };
            let config = LaunchConfig::new(47, 64)
                .with_shared(512)
                .with_resident(resident);
            run(&kernel, config, &args, schedule).unwrap();
            assert_eq!(out, want, "{schedule:?}, {resident:?}");
        }
    }
}

kernel_args! {
    pub struct QueueArgs {
        pub work: DevicePtr as "const u32*",
        pub done: DevicePtr as "u64*",
        pub taken: DevicePtr as "u32*",
        pub items: u32,
        pub padding: u32,
    }
}

// Persistent warps take items of uneven length from a queue.
const QUEUE: &str = r"
WL_KERNEL(queue, QueueArgs, args) {
    while (true) {
        u32 item = 0;
        if (lane_id() == 0) item = atomicAdd(args.taken, 1u);
        item = __shfl_sync(WL_FULL_MASK, item, 0);
        if (item >= args.items) break;
        u64 sum = 0;
        for (u32 i = lane_id(); i < args.work[item]; i += 32) sum += i;
        sum = warp_sum(sum);
        if (lane_id() == 0) atomicAdd(&args.done[item], sum);
    }
}
";

#[test]
fn warps_take_work_from_a_queue() {
    let kernel = compile("queue.cu", &[QueueArgs::CUDA], QUEUE)
        .kernel("queue")
        .unwrap();
    let mut numbers = Numbers::new(9);
    let mut work: Vec<u32> = (0..300).map(|_| numbers.draw() as u32 % 200).collect();
    let want: Vec<u64> = work
        .iter()
        .map(|n| u64::from(*n) * u64::from(n.saturating_sub(1)) / 2)
        .collect();
    for schedule in schedules() {
        let (mut done, mut taken) = (vec![0u64; 300], [0u32]);
        let args = QueueArgs {
            work: device(&mut work),
            done: device(&mut done),
            taken: device(&mut taken),
            items: 300,
            padding: 0,
        };
        run(
            &kernel,
            LaunchConfig::new(4, 96).with_resident(Resident::All),
            &args,
            schedule,
        )
        .unwrap();
        assert_eq!(done, want, "{schedule:?}");
        assert_eq!(
            taken[0],
            300 + 12,
            "each of the 12 warps looks once in vain"
        );
    }
}

kernel_args! {
    pub struct TableArgs {
        pub keys: DevicePtr as "const u64*",
        pub states: DevicePtr as "u32*",
        pub slots: DevicePtr as "u64*",
        pub counts: DevicePtr as "u32*",
        pub n: u64,
        /// Slots less one; the number of slots is a power of two.
        pub slot_mask: u64,
    }
}

/// A hash table whose slots are claimed, filled and then published. `@CLAIM@` is where it can go wrong.
pub(crate) const TABLE: &str = r"
#define EMPTY 0u
#define CLAIMED 1u
#define READY 2u

WL_KERNEL(count_keys, TableArgs, args) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= args.n) return;
    u64 key = args.keys[i];
    for (u64 slot = hash64(key) & args.slot_mask;; slot = (slot + 1) & args.slot_mask) {
        u32 state = load_acquire(&args.states[slot]);
        if (state == EMPTY) {
            state = atomicCAS(&args.states[slot], EMPTY, @CLAIM@);
            if (state == EMPTY) {
                args.slots[slot] = key;
                store_release(&args.states[slot], READY);
                state = READY;
            }
        }
        while (state == CLAIMED) {
            spin_pause(20);
            state = load_acquire(&args.states[slot]);
        }
        if (args.slots[slot] == key) {
            atomicAdd(&args.counts[slot], 1u);
            return;
        }
    }
}
";

/// Runs the table and says whether its counts were right.
pub(crate) fn table_is_right(kernel: &warpline_cuda::emulator::Kernel, schedule: Schedule) -> bool {
    let mut numbers = Numbers::new(4);
    let mut keys: Vec<u64> = (0..1500)
        .map(|_| numbers.draw() % 100 * 1_000_003)
        .collect();
    let mut want = HashMap::new();
    for key in &keys {
        *want.entry(*key).or_insert(0u32) += 1;
    }
    // No key is this value, which an unpublished slot shows.
    let (mut states, mut slots, mut counts) =
        (vec![0u32; 256], vec![u64::MAX; 256], vec![0u32; 256]);
    let args = TableArgs {
        keys: device(&mut keys),
        states: device(&mut states),
        slots: device(&mut slots),
        counts: device(&mut counts),
        n: 1500,
        slot_mask: 255,
    };
    run(kernel, LaunchConfig::new(12, 128), &args, schedule).unwrap();
    let got: Vec<(u64, u32)> = slots
        .iter()
        .copied()
        .zip(counts.iter().copied())
        .filter(|(_, count)| *count > 0)
        .collect();
    // Two slots for one key would make the list longer than the map.
    got.len() == want.len() && got.iter().all(|(key, count)| want.get(key) == Some(count))
}

#[test]
fn hash_table_claims_then_publishes() {
    let body = TABLE.replace("@CLAIM@", "CLAIMED");
    let kernel = compile("table.cu", &[TableArgs::CUDA], &body)
        .kernel("count_keys")
        .unwrap();
    for schedule in schedules() {
        assert!(table_is_right(&kernel, schedule), "{schedule:?}");
    }
}

#[test]
fn only_random_yields_find_a_slot_published_before_it_is_filled() {
    let body = TABLE.replace("@CLAIM@", "READY");
    let kernel = compile("early.cu", &[TableArgs::CUDA], &body)
        .kernel("count_keys")
        .unwrap();
    assert!(table_is_right(&kernel, Schedule::Ascending));
    assert!(table_is_right(&kernel, Schedule::Descending));
    assert!((1..8).all(|seed| table_is_right(&kernel, Schedule::Random(seed))));
    assert!((1..8).any(|seed| !table_is_right(&kernel, Schedule::RandomYields(seed))));
}

#[test]
fn a_schedule_repeats_from_its_seed() {
    let body = TABLE.replace("@CLAIM@", "CLAIMED");
    let kernel = compile("table.cu", &[TableArgs::CUDA], &body)
        .kernel("count_keys")
        .unwrap();
    let switches = |schedule| {
        let mut keys: Vec<u64> = (0..640).map(|i| i % 50).collect();
        let (mut states, mut slots, mut counts) =
            (vec![0u32; 64], vec![u64::MAX; 64], vec![0u32; 64]);
        let args = TableArgs {
            keys: device(&mut keys),
            states: device(&mut states),
            slots: device(&mut slots),
            counts: device(&mut counts),
            n: 640,
            slot_mask: 63,
        };
        let report = run(&kernel, LaunchConfig::new(5, 128), &args, schedule).unwrap();
        (report.switches, report.pauses, slots)
    };
    let first = switches(Schedule::RandomYields(8));
    assert_eq!(first, switches(Schedule::RandomYields(8)));
    assert_ne!(first, switches(Schedule::RandomYields(9)));
}
