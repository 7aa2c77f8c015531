#!/usr/bin/env bash
# Pack the program and the device tests for a GPU machine that has no Rust.
#
#   scripts/bundle.sh [--program-only] [PACKAGE...]
#
# PACKAGE: crates whose tests go along; by default those that have device tests.
# The result is .bundle/warpline-bundle.tar.xz. On the GPU machine (Linux x86-64, glibc no older than
# here, NVIDIA driver, NVRTC, and a C++ compiler for the emulator's half of the tests):
#
#   tar xf warpline-bundle.tar.xz && warpline-bundle/run-tests
#   warpline-bundle/bin/warpline tpch --scale 1 --device cuda
set -euo pipefail
cd "$(dirname "$0")/.."

program_only=false
if [ "${1:-}" = "--program-only" ]; then
  program_only=true
  shift
fi
packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
  packages=(warpline-gpu)
fi

for tool in cargo strip tar xz; do
  command -v "$tool" >/dev/null || { echo "bundle.sh: $tool is missing; install it" >&2; exit 1; }
done

# The files that a cargo command built and that can be run, from its messages.
executables() {
  "$@" --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}

folder=.bundle/warpline-bundle
rm -rf .bundle
mkdir -p "$folder/bin" "$folder/tests"

echo "building the program" >&2
executables cargo build --release --locked -p warpline --bin warpline >.bundle/programs
while read -r program; do
  strip -o "$folder/bin/$(basename "$program")" "$program"
done <.bundle/programs
[ -x "$folder/bin/warpline" ] || { echo "bundle.sh: cargo built no program" >&2; exit 1; }

if ! $program_only; then
  for package in "${packages[@]}"; do
    echo "building the tests of $package" >&2
    executables cargo test --release --locked --no-run -p "$package" >.bundle/tests
    [ -s .bundle/tests ] || { echo "bundle.sh: $package has no tests" >&2; exit 1; }
    while read -r test; do
      name="$(basename "$test")"
      # Without the hash that cargo appends.
      strip -o "$folder/tests/$package-${name%-*}" "$test"
    done <.bundle/tests
  done
fi
rm -f .bundle/programs .bundle/tests

cat >"$folder/run-tests" <<'RUN'
#!/usr/bin/env bash
# Run the device tests on the first GPU and on the emulator. Arguments go to every test program, e.g. a
# filter. WRAP is put in front of each, e.g. WRAP="compute-sanitizer --error-exitcode 1".
set -uo pipefail
cd "$(dirname "$0")"
export WARPLINE_TEST_DEVICE="${WARPLINE_TEST_DEVICE:-cuda}" WARPLINE_REQUIRE_NVRTC=1 RUST_BACKTRACE=1
bin/warpline devices || exit
failed=0
for test in tests/*; do
  [ -x "$test" ] || continue
  echo "== $test"
  ${WRAP:-} "$test" "$@" || failed=1
done
exit $failed
RUN
chmod +x "$folder/run-tests"

echo "packing" >&2
tar -C .bundle -cf - warpline-bundle | xz -T0 -6 >.bundle/warpline-bundle.tar.xz
rm -rf "$folder"
ls -l .bundle/warpline-bundle.tar.xz >&2
