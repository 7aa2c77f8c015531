#!/usr/bin/env bash
# Pack the program and tests for a GPU machine that has no Rust.
#
#   scripts/bundle.sh [--program-only] [PACKAGE...]     the program and the device tests of PACKAGEs
#   scripts/bundle.sh --sql-tests                       the SQL tests alone, a bundle of their own
#
# PACKAGE: crates whose tests go along; by default those that have device tests.
# The result is .bundle/warpline-bundle.tar.xz or .bundle/warpline-sql-tests.tar.xz. On the GPU machine (Linux
# x86-64, glibc no older than here, NVIDIA driver, NVRTC, and a C++ compiler for the emulator's half of the tests):
#
#   tar xf warpline-bundle.tar.xz && warpline-bundle/run-tests
#   warpline-bundle/bin/warpline tpch --scale 1 --device cuda
#   tar xf warpline-sql-tests.tar.xz && warpline-sql-tests/run-tests
set -euo pipefail
cd "$(dirname "$0")/.."

# What a bundle may take, compressed: it has to fit through the way to the GPU machine.
most_bytes=$((64 << 20))
program=true
tests=true
name=warpline-bundle
packages=(warpline-gpu)
case "${1:-}" in
  --program-only)
    tests=false
    shift
    ;;
  --sql-tests)
    program=false
    name=warpline-sql-tests
    packages=(warpline-sql-tests)
    shift
    ;;
esac
[ $# -eq 0 ] || packages=("$@")

for tool in cargo strip tar xz; do
  command -v "$tool" >/dev/null || { echo "bundle.sh: $tool is missing; install it" >&2; exit 1; }
done

# The files that a cargo command built and that can be run, from its messages.
executables() {
  "$@" --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}

folder=.bundle/$name
list=.bundle/executables
mkdir -p .bundle
rm -rf "$folder" "$folder.tar.xz"
mkdir -p "$folder/bin" "$folder/tests"

if $program; then
  echo "building the program" >&2
  executables cargo build --release --locked -p warpline --bin warpline >"$list"
  while read -r file; do
    strip -o "$folder/bin/$(basename "$file")" "$file"
  done <"$list"
  [ -x "$folder/bin/warpline" ] || { echo "bundle.sh: cargo built no program" >&2; exit 1; }
fi

if $tests; then
  for package in "${packages[@]}"; do
    echo "building the tests of $package" >&2
    executables cargo test --release --locked --no-run -p "$package" >"$list"
    [ -s "$list" ] || { echo "bundle.sh: $package has no tests" >&2; exit 1; }
    while read -r file; do
      test="$(basename "$file")"
      # Without the hash that cargo appends.
      strip -o "$folder/tests/$package-${test%-*}" "$file"
    done <"$list"
  done
  cp -r sql-tests/slt "$folder/slt"
fi
rm -f "$list"

cat >"$folder/run-tests" <<'RUN'
#!/usr/bin/env bash
# Run the tests on the first GPU (WARPLINE_TEST_DEVICE=emulator: on the emulator). Arguments go to every test
# program, e.g. a filter. WRAP is put in front of each, e.g. WRAP="compute-sanitizer --error-exitcode 1".
set -uo pipefail
cd "$(dirname "$0")"
export WARPLINE_TEST_DEVICE="${WARPLINE_TEST_DEVICE:-cuda}" WARPLINE_REQUIRE_NVRTC=1 RUST_BACKTRACE=1
export WARPLINE_SLT_DIR="$PWD/slt"
if [ -x bin/warpline ]; then
  # Test programs cannot be started as helpers of their own.
  export WARPLINE_COMPILER="${WARPLINE_COMPILER:-$PWD/bin/warpline}"
  bin/warpline devices || exit
fi
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
tar -C .bundle -cf - "$name" | xz -T0 -6 >"$folder.tar.xz"
rm -rf "$folder"
ls -l "$folder.tar.xz" >&2
bytes="$(wc -c <"$folder.tar.xz")"
if [ "$bytes" -gt "$most_bytes" ]; then
  echo "bundle.sh: $bytes bytes are more than $most_bytes; pack fewer packages at once" >&2
  exit 1
fi
