//! Planted mistakes, and what the emulator says about each.

use std::time::{Duration, Instant};

use warpline_cuda::emulator::{EmulatorError, LaunchConfig, Resident, Schedule, WaitingReport};
use warpline_cuda::{DevicePtr, KernelArgs, kernel_args};

use crate::support::{compile, device, run};

kernel_args! {
    pub struct FaultArgs {
        pub out: DevicePtr as "u32*",
    }
}

/// Launches a kernel named `faulty`; `out` has 1024 zeros before.
fn launch(body: &str, config: LaunchConfig, schedule: Schedule) -> Result<Vec<u32>, EmulatorError> {
    let kernel = compile("faulty.cu", &[FaultArgs::CUDA], body)
        .kernel("faulty")
        .unwrap();
    let mut out = vec![0u32; 1024];
    run(
        &kernel,
        config,
        &FaultArgs {
            out: device(&mut out),
        },
        schedule,
    )
    .map(|_| out)
}

fn waiting(result: Result<Vec<u32>, EmulatorError>) -> WaitingReport {
    match result {
        Err(EmulatorError::Deadlock { waiting, .. } | EmulatorError::Livelock { waiting, .. }) => {
            waiting
        }
        other => panic!("neither deadlock nor livelock: {other:?}"),
    }
}

#[test]
fn a_missing_syncwarp_shows_in_descending_order() {
    let body = "
        struct Words { u32 w[32]; };
        WL_KERNEL(faulty, FaultArgs, args) {
            WL_SHARED(Words, s);
            s.w[lane_id()] = lane_id();
            args.out[lane_id()] = s.w[lane_id() == 0 ? 0 : lane_id() - 1];
        }";
    let config = LaunchConfig::new(1, 32).with_shared(128);
    let want: Vec<u32> = (0..32u32).map(|lane| lane.saturating_sub(1)).collect();
    let run = |body: &str, schedule| launch(body, config, schedule).unwrap()[..32].to_vec();
    assert_eq!(
        run(body, Schedule::Ascending),
        want,
        "ascending order hides it"
    );
    let wrong = run(body, Schedule::Descending);
    assert_eq!(wrong[5], 0xa5a5_a5a5, "shared memory starts poisoned");
    let mended = body.replace("= lane_id();\n", "= lane_id();\n__syncwarp();\n");
    for schedule in Schedule::all(2) {
        assert_eq!(run(&mended, schedule), want, "{schedule:?}");
    }
}

#[test]
fn a_divergent_barrier_reports_lanes_and_lines() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) {
            (void)args;
            if (threadIdx.x < 40)
                __syncthreads();
            else
                __syncthreads();
        }";
    for schedule in Schedule::all(3) {
        let report = waiting(launch(body, LaunchConfig::new(1, 64), schedule));
        let found: Vec<_> = report
            .groups
            .iter()
            .map(|g| (g.warp, g.lanes, g.operation, g.place.as_str()))
            .collect();
        let name = "__syncthreads";
        let want = [
            (0, u32::MAX, name, "faulty.cu:4"),
            (1, 0x0000_00ff, name, "faulty.cu:4"),
            (1, 0xffff_ff00, name, "faulty.cu:6"),
        ];
        assert_eq!(found, want, "{schedule:?}");
    }
}

#[test]
fn a_mask_whose_lanes_do_not_come_is_a_deadlock() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) {
            u32 v = 0;
            if (lane_id() % 2 == 0)
                v = __shfl_sync(0xffffffffu, 1u, 0);
            __syncthreads();
            args.out[threadIdx.x] = v;
        }";
    let error = launch(body, LaunchConfig::new(2, 32), Schedule::Random(1)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("lanes 0x55555555 wait in __shfl_sync at faulty.cu:4, mask 0xffffffff, missing 0xaaaaaaaa"), "{text}");
    assert!(
        text.contains("lanes 0xaaaaaaaa wait in __syncthreads at faulty.cu:5"),
        "{text}"
    );
}

#[test]
fn different_masks_at_one_place_do_not_meet() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) {
            __syncwarp(lane_id() < 16 ? 0xffffffffu : 0xffff0000u);
            __syncwarp();
            args.out[threadIdx.x] = 1;
        }";
    let report = waiting(launch(body, LaunchConfig::new(1, 32), Schedule::Ascending));
    assert_eq!(report.groups[0].lanes, 0x0000_ffff);
    assert_eq!(report.groups[0].mask, Some(0xffff_ffff));
    assert_eq!(report.groups[1].lanes, 0xffff_0000);
    assert!(report.groups[1].place.ends_with(":3"));
}

#[test]
fn exited_lanes_count_at_barriers_but_not_in_masks() {
    let leave = |rest: &str| {
        format!(
            "WL_KERNEL(faulty, FaultArgs, args) {{\nif (threadIdx.x >= 20) return;\n{rest}\nargs.out[threadIdx.x] = 1;\n}}"
        )
    };
    for schedule in Schedule::all(4) {
        let config = LaunchConfig::new(1, 64);
        let barrier = launch(
            &leave("__syncthreads(); int n = __syncthreads_count(1); if (n != 20) __trap();"),
            config,
            schedule,
        );
        assert_eq!(barrier.unwrap().iter().sum::<u32>(), 20);
        for rest in [
            "__syncwarp();",
            "block_sum(1u, *(BlockScratch<u32>*)args.out);",
        ] {
            match launch(&leave(rest), config, schedule).unwrap_err() {
                EmulatorError::Lane { cause, .. } => {
                    assert!(cause.contains("exited"), "{rest} {cause}")
                }
                other => panic!("{rest} under {schedule:?}: {other}"),
            }
        }
    }
}

#[test]
fn a_mask_must_name_its_caller_and_existing_lanes() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) { args.out[threadIdx.x] = __ballot_sync(0x0000fffeu, 1); }";
    let error = launch(body, LaunchConfig::new(1, 32), Schedule::Ascending)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("thread 0") && error.contains("leaves itself out"),
        "{error}"
    );

    let body = "WL_KERNEL(faulty, FaultArgs, args) { args.out[threadIdx.x] = __ballot_sync(0xffffffffu, 1); }";
    let error = launch(body, LaunchConfig::new(1, 40), Schedule::Descending)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("lanes 0xffffff00 of warp 1 have exited or do not exist"),
        "{error}"
    );
}

#[test]
fn waiting_for_what_never_comes_is_a_livelock() {
    let pause = "WL_KERNEL(faulty, FaultArgs, args) {
            if (threadIdx.x == 3)
                while (load_acquire(args.out) == 0) spin_pause(100);
            __syncthreads();
        }";
    for schedule in Schedule::all(5) {
        let report = waiting(launch(pause, LaunchConfig::new(1, 32), schedule));
        assert_eq!(report.groups.len(), 2);
        let spinner = report.groups.iter().find(|g| g.spinning).unwrap();
        assert_eq!(
            (spinner.lanes, spinner.place.as_str()),
            (1 << 3, "faulty.cu:3"),
            "{schedule:?}"
        );
        let others = report.groups.iter().find(|g| !g.spinning).unwrap();
        assert_eq!(
            (others.lanes, others.operation),
            (!(1 << 3), "__syncthreads")
        );
    }
    // Without spin_pause the polls themselves let others run, and end it.
    let poll = pause.replace("spin_pause(100)", "");
    let kernel = compile("poll.cu", &[FaultArgs::CUDA], &poll)
        .kernel("faulty")
        .unwrap();
    let mut out = vec![0u32; 1];
    let config = LaunchConfig {
        idle_pauses: 1000,
        ..LaunchConfig::new(1, 32)
    };
    for schedule in Schedule::all(5) {
        let result = run(
            &kernel,
            config,
            &FaultArgs {
                out: device(&mut out),
            },
            schedule,
        );
        assert!(
            matches!(result, Err(EmulatorError::Livelock { .. })),
            "{schedule:?}: {result:?}"
        );
    }
    out[0] = 1;
    run(
        &kernel,
        config,
        &FaultArgs {
            out: device(&mut out),
        },
        Schedule::Ascending,
    )
    .unwrap();
}

#[test]
fn a_grid_barrier_needs_all_blocks_resident() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) {
            __syncthreads();
            if (threadIdx.x == 0) {
                atomicAdd(args.out, 1u);
                while (load_acquire(args.out) < gridDim.x) spin_pause(100);
            }
            __syncthreads();
        }";
    for schedule in Schedule::all(6) {
        let config = LaunchConfig::new(10, 64);
        launch(body, config.with_resident(Resident::All), schedule).unwrap();
        let config = LaunchConfig {
            idle_pauses: 10_000,
            ..config.with_resident(Resident::Blocks(4))
        };
        let report = waiting(launch(body, config, schedule));
        assert_eq!(
            (report.finished_blocks, report.unstarted_blocks),
            (0, 6),
            "{schedule:?}"
        );
    }
}

#[test]
fn a_time_limit_ends_what_makes_progress_forever() {
    let body = "WL_KERNEL(faulty, FaultArgs, args) { while (load_relaxed(&args.out[1]) == 0) atomicAdd(args.out, 1u); }";
    let kernel = compile("faulty.cu", &[FaultArgs::CUDA], body)
        .kernel("faulty")
        .unwrap();
    let mut out = vec![0u32; 2];
    let config = LaunchConfig {
        time_limit: Some(Duration::from_millis(100)),
        ..LaunchConfig::new(1, 32)
    };
    let started = Instant::now();
    // SAFETY: the kernel touches two words of `out`, which outlives the launch.
    let result = unsafe {
        kernel.launch(
            config,
            FaultArgs {
                out: device(&mut out),
            }
            .as_bytes(),
            Schedule::Ascending,
        )
    };
    assert!(
        matches!(result, Err(EmulatorError::Livelock { .. })),
        "{result:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn traps_and_wrong_uses_of_shared_memory_are_errors() {
    let trap =
        "WL_KERNEL(faulty, FaultArgs, args) {\n(void)args;\nif (threadIdx.x == 33) __trap();\n}";
    match launch(trap, LaunchConfig::new(1, 64), Schedule::Random(2)).unwrap_err() {
        EmulatorError::Lane {
            thread: 33,
            block: 0,
            place,
            ..
        } => assert_eq!(place, "faulty.cu:3"),
        other => panic!("{other}"),
    }

    let small = "struct Big { u32 w[64]; };
        WL_KERNEL(faulty, FaultArgs, args) { WL_SHARED(Big, s); s.w[threadIdx.x] = 0; args.out[0] = s.w[0]; }";
    let error = launch(
        small,
        LaunchConfig::new(1, 32).with_shared(128),
        Schedule::Ascending,
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("launch with at least 256 bytes"),
        "{error}"
    );
    launch(
        small,
        LaunchConfig::new(1, 32).with_shared(256),
        Schedule::Ascending,
    )
    .unwrap();

    let over = "struct Words { u32 w[32]; };
        WL_KERNEL(faulty, FaultArgs, args) { WL_SHARED(Words, s); (s.w + (args.out[0] == 0))[threadIdx.x] = 7; }";
    let error = launch(
        over,
        LaunchConfig::new(2, 32).with_shared(128),
        Schedule::Ascending,
    )
    .unwrap_err();
    assert!(
        matches!(error, EmulatorError::SharedOverrun { bytes: 128, .. }),
        "{error}"
    );
}

#[test]
fn launches_work_after_failed_ones_and_on_many_threads() {
    let fail = "WL_KERNEL(faulty, FaultArgs, args) { (void)args; if (threadIdx.x) __syncwarp(); }";
    let good = "WL_KERNEL(faulty, FaultArgs, args) { args.out[threadIdx.x] = warp_sum(1u); }";
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for round in 0..10 {
                    let schedule = Schedule::all(thread * 100 + round)[round as usize % 4];
                    launch(fail, LaunchConfig::new(3, 256), schedule).unwrap_err();
                    let out = launch(good, LaunchConfig::new(3, 256), schedule).unwrap();
                    assert!(out[..256].iter().all(|v| *v == 32));
                }
            });
        }
    });
}
