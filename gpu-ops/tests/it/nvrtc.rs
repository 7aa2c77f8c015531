//! NVRTC compiles every header, with or without a GPU; `WARPLINE_REQUIRE_NVRTC=1` makes that a must.

use warpline_gpu::GpuError;
use warpline_gpu::device::compiler::{Compilers, Way};
use warpline_gpu::device::nvrtc;

const ARCHITECTURE: (u32, u32) = (9, 0);

/// False, with the reason printed, when NVRTC is missing and nothing demands it.
fn available() -> bool {
    let required = std::env::var("WARPLINE_REQUIRE_NVRTC").is_ok_and(|value| value == "1");
    match nvrtc::version() {
        Ok(_) => true,
        Err(error) if required => panic!("{error}"),
        Err(error) => {
            println!("not run: {error}");
            false
        }
    }
}

/// ELF's machine number of CUDA binaries.
fn is_cubin(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") && bytes.get(18..20) == Some(&190_u16.to_le_bytes()[..])
}

#[test]
fn every_header_compiles_for_the_gpu() {
    if !available() {
        return;
    }
    println!("{}", nvrtc::location().unwrap());
    for (header, _) in warpline_cuda::headers() {
        let source = format!(
            "#include \"simt.cuh\"\n#include \"{header}\"\nstruct Args {{ u64* out; }};\n\
             WL_KERNEL(probe, Args, args) {{ args.out[threadIdx.x] = lane_id(); }}\n"
        );
        let cubin = nvrtc::compile_whole("probe", &source, ARCHITECTURE)
            .unwrap_or_else(|error| panic!("{header}: {error}"));
        assert!(is_cubin(&cubin), "{header}");
    }
}

#[test]
fn nvrtc_reports_errors_with_lines() {
    if !available() {
        return;
    }
    let source = "#include \"simt.cuh\"\nint wrong = undeclared;\n";
    for compile in [nvrtc::compile, nvrtc::compile_whole] {
        match compile("wrong", source, ARCHITECTURE) {
            Err(GpuError::Compile { kernel, log }) => {
                assert_eq!(kernel, "wrong");
                assert!(
                    log.contains("undeclared") && log.contains("wrong.cu(2)"),
                    "{log}"
                );
            }
            other => panic!("{:?}", other.map(|cubin| cubin.len())),
        }
    }
}

#[test]
fn architectures_are_matched_within_a_major_version() {
    if !available() {
        return;
    }
    assert_eq!(nvrtc::architecture_for((9, 0)).unwrap(), (9, 0));
    // A later minor version runs the code of an earlier one; another major version does not.
    assert_eq!(nvrtc::architecture_for((9, 7)).unwrap(), (9, 0));
    assert!(nvrtc::architecture_for((99, 0)).is_err());
    assert!(nvrtc::architecture_for((3, 5)).is_err());
}

#[test]
fn ways_without_processes_compile_the_same() {
    if !available() {
        return;
    }
    let source = "#include \"simt.cuh\"\nstruct Args { u64* out; };\n\
                  WL_KERNEL(probe, Args, args) { args.out[threadIdx.x] = lane_id(); }\n";
    let expected = nvrtc::compile("probe", source, ARCHITECTURE).unwrap();
    let missing = Way::Processes("/nonexistent/warpline".into());
    let ways = [
        (vec![missing.clone(), Way::Copies], Way::Copies),
        (vec![missing, Way::Thread], Way::Thread),
        (vec![], Way::Thread),
    ];
    for (ways, way) in ways {
        let compilers = Compilers::new(ways, 2).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let cubin = compilers.compile("probe", source, ARCHITECTURE, None);
                    assert!(cubin.unwrap() == expected, "{way}");
                });
            }
        });
        assert_eq!(compilers.way(), way);
    }
}
