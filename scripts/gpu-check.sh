#!/usr/bin/env bash
# Verify and measure Warpline on a GPU machine, from bundles made by scripts/bundle.sh.
#
#   scripts/gpu-check.sh BUNDLE.tar.xz OUTPUT-DIR [STEP...]
#
# Steps, all by default and in this order:
#   devices                   what the machine has
#   tests                     the device tests
#   sql                       the SQL tests on the GPU against the CPU, with WARPLINE_EXHAUSTIVE=1 unless that is set;
#                             needs warpline-sql-tests.tar.xz beside BUNDLE
#   tpch1 tpch10 tpch100      all 22 queries, verified at scale 1 and 10, as JSON with kernel times
#   verify100                 all 22 at scale 100 against the CPU of the machine, once
#   cpu10                     all 22 at scale 10 on the CPU of the machine
#   cold                      all 22 at scale 0.1 with an empty kernel cache: what compiling costs
#   memcheck                  compute-sanitizer's memcheck over all 22
#   memcheck_kernels          the same over the tests of the hand-written kernels, …
#   racecheck synccheck       … and its racecheck (shared memory) and synccheck (barriers); not among the default steps
#   profile                   Nsight Compute over QUERIES at scale 10
#
# QUERIES (e.g. QUERIES=1,6) chooses the queries of the tpch, memcheck and profile steps. Data goes to DATA, by
# default a folder that is removed at the end; files that are there already are used. Each step writes its log and
# results to OUTPUT-DIR and does not stop the others; a table of outcomes comes last, and the exit status is 1 when
# one failed.
#
# KERNELS chooses the kernel tests that the sanitizers watch, e.g. KERNELS=primitives::pairs. What racecheck cannot know:
# write_combine.cu guards its buffers by counters that are read and written atomically, which the tool does not take for
# order; no kernel test launches it.
set -uo pipefail
bundle="$(realpath "$1")"
out="$(realpath -m "$2")"
shift 2
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(devices tests sql tpch1 tpch10 tpch100 verify100 cpu10 cold memcheck profile)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
data="$(realpath -m "${DATA:-$work/data}")"
mkdir -p "$out" "$data"
tar -C "$work" -xf "$bundle"
sql_tests="$(dirname "$bundle")/warpline-sql-tests.tar.xz"
[ ! -e "$sql_tests" ] || tar -C "$work" -xf "$sql_tests"
export PATH="$work/warpline-bundle/bin:$PATH" WARPLINE_CACHE_DIR="$work/cache"
queries=(${QUERIES:+--query "$QUERIES"})
gpu=(--device cuda --require-gpu "${queries[@]}")

# The tables at a scale, made once.
generated() {
  local folder="$data/sf$1"
  if [ ! -e "$folder/.complete" ]; then
    rm -rf "$folder"
    warpline tpch generate --scale "$1" --output "$folder" --format parquet >&2 && touch "$folder/.complete" || return
  fi
  du -sh "$folder" >&2
  printf '%s' "$folder"
}

# A table of a JSON report: what a query costs, and how far that is from the least it could.
summary() {
  command -v python3 >/dev/null || { cat "$1"; return; }
  python3 - "$1" <<'PY'
import json, sys
report = json.load(open(sys.argv[1]))
names = ["hot_median_ms", "hot_plan_ms", "kernel_ms", "kernels", "bytes", "floor_ms", "cold_ms", "compile_ms", "load_ms"]
print("scale %s on %s, hot total %.1f ms" % (report["scale"], report["device"], report["total_hot_ms"]))
print(" ".join(f"{n:>13}" for n in ["query", "verified", *names, "hot/floor"]))
for q in report["queries"]:
    hot, floor = q["hot_median_ms"], q["floor_ms"]
    cells = [q["query"], q["verified"], *(q[n] for n in names), round(hot / floor, 1) if hot and floor else None]
    print(" ".join(f"{'-' if c is None else str(c):>13}" for c in cells))
for q in report["queries"]:
    for text in q["fallbacks"] + ([q["error"]] if q["error"] else []):
        print("Q%d: %s" % (q["query"], text))
PY
}

# tpch NAME ARGUMENT...: a run whose report is NAME.json; its table ends the log whether or not the run passed.
tpch() {
  local report="$out/$1.json" status=0
  shift
  warpline tpch "$@" --format json --output "$report" || status=$?
  [ ! -e "$report" ] || summary "$report"
  return $status
}

step_devices() { warpline devices; nvidia-smi; nproc; }
step_tests() { "$work/warpline-bundle/run-tests" --test-threads 4; }
step_sql() {
  [ -d "$work/warpline-sql-tests" ] || { echo "$sql_tests is missing: scripts/bundle.sh --sql-tests"; return 1; }
  WARPLINE_EXHAUSTIVE="${WARPLINE_EXHAUSTIVE:-1}" "$work/warpline-sql-tests/run-tests" --test-threads 8
}
step_tpch1() { tpch tpch1 --scale 1 "${gpu[@]}" --verify --runs 7; }
step_tpch10() {
  local folder
  folder="$(generated 10)" || return
  tpch tpch10 --scale 10 --data "$folder" "${gpu[@]}" --verify --runs 11
}
step_tpch100() {
  local folder
  folder="$(generated 100)" || return
  tpch tpch100 --scale 100 --data "$folder" "${gpu[@]}" --no-verify --runs 11
}
step_verify100() {
  local folder
  folder="$(generated 100)" || return
  tpch verify100 --scale 100 --data "$folder" "${gpu[@]}" --verify --runs 1
}
step_cpu10() {
  local folder
  folder="$(generated 10)" || return
  tpch cpu10 --scale 10 --data "$folder" --device cpu "${queries[@]}" --no-verify --runs 2
}
step_cold() {
  WARPLINE_CACHE_DIR="$work/empty-cache" tpch cold --scale 0.1 "${gpu[@]}" --verify --runs 1
}
# Kernels with line numbers, for the tools that show them.
lines=(env WARPLINE_NVRTC_OPTIONS=--generate-line-info)
step_memcheck() {
  "${lines[@]}" compute-sanitizer --tool memcheck --error-exitcode 9 warpline tpch --scale 0.1 "${gpu[@]}" --verify --runs 1
}
# The tests of kernels on the GPU alone, under a tool of compute-sanitizer.
sanitized() {
  WARPLINE_TEST_DEVICE=cuda-only WRAP="compute-sanitizer --tool $1 --error-exitcode 9" \
    "${lines[@]}" "$work/warpline-bundle/run-tests" "${KERNELS:-primitives::}" --test-threads 1
}
step_memcheck_kernels() { sanitized memcheck; }
step_racecheck() { sanitized racecheck; }
step_synccheck() { sanitized synccheck; }
step_profile() {
  local folder
  folder="$(generated 10)" || return
  "${lines[@]}" ncu --clock-control none --set full -o "$out/profile" -f \
    warpline tpch --scale 10 --data "$folder" "${gpu[@]}" --no-verify --runs 1
  ncu --import "$out/profile.ncu-rep" --page details >"$out/profile.txt"
}

results=() failed=0
for step in "${steps[@]}"; do
  echo "== $step ($SECONDS s)"
  begin=$SECONDS
  if "step_$step" >"$out/$step.log" 2>&1; then
    results+=("$step ok ($((SECONDS - begin)) s)")
  else
    results+=("$step FAILED ($?, $((SECONDS - begin)) s)")
    failed=1
  fi
  tail -n 60 "$out/$step.log"
done
printf '%s\n' "== outcomes ($SECONDS s)" "${results[@]}"
exit $failed
