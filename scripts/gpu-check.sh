#!/usr/bin/env bash
# Verify and measure Warpline on a GPU machine, from a bundle made by scripts/bundle.sh.
#
#   scripts/gpu-check.sh BUNDLE.tar.xz OUTPUT-DIR [STEP...]
#
# Steps: devices tests tpch1 memcheck tpch10 tpch100 profile; all by default. Each step writes its log and
# results to OUTPUT-DIR and does not stop the others; a table of outcomes comes last.
set -uo pipefail
bundle="$(realpath "$1")"
out="$(realpath -m "$2")"
shift 2
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(devices tests tpch1 memcheck tpch10 tpch100 profile)
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
tar -C "$work" -xf "$bundle"
export PATH="$work/warpline-bundle/bin:$PATH" WARPLINE_CACHE_DIR="$work/cache"
gpu=(--device cuda --require-gpu --query 1,6)

step_devices() { warpline devices; nvidia-smi; }
step_tests() { "$work/warpline-bundle/run-tests" --test-threads 4; }
step_tpch1() {
  warpline tpch --scale 1 "${gpu[@]}" --verify --runs 7 --output "$out/tpch1.json" --format json
  warpline tpch --scale 1 --device cuda --verify --runs 1
}
step_memcheck() {
  compute-sanitizer --tool memcheck --error-exitcode 9 warpline tpch --scale 0.1 "${gpu[@]}" --verify --runs 1
}
step_tpch10() {
  warpline tpch generate --scale 10 --output "$work/sf10" --format parquet
  warpline tpch --scale 10 --data "$work/sf10" "${gpu[@]}" --verify --runs 11 --format json --output "$out/tpch10.json"
  warpline tpch --scale 10 --data "$work/sf10" "${gpu[@]}" --runs 5
  warpline tpch --scale 10 --data "$work/sf10" --device cpu --runs 2 --format json --output "$out/tpch10-cpu.json"
  warpline tpch --scale 10 --data "$work/sf10" --device cuda --runs 2 --format json --output "$out/tpch10-all.json"
  rm -rf "$work/sf10"
}
step_tpch100() {
  time warpline tpch generate --scale 100 --output "$work/sf100" --format parquet
  du -sh "$work/sf100"
  warpline tpch --scale 100 --data "$work/sf100" "${gpu[@]}" --runs 15 --format json --output "$out/tpch100.json"
  warpline tpch --scale 100 --data "$work/sf100" "${gpu[@]}" --runs 5 --verify
  rm -rf "$work/sf100"
}
step_profile() {
  ncu --clock-control none --set full -o "$out/profile" -f \
    warpline tpch --scale 10 "${gpu[@]}" --runs 1
  ncu --import "$out/profile.ncu-rep" --page details >"$out/profile.txt"
}

results=()
for step in "${steps[@]}"; do
  echo "== $step ($SECONDS s)"
  if "step_$step" >"$out/$step.log" 2>&1; then results+=("$step ok"); else results+=("$step FAILED ($?)"); fi
  tail -n 40 "$out/$step.log"
done
printf '%s\n' "== outcomes ($SECONDS s)" "${results[@]}"
