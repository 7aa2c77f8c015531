#!/usr/bin/env bash
# Tests of the Python package against the dev build that `cargo build --workspace --all-targets` leaves: pytest, the examples of
# docstrings, and types. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/warpline"
target="${CARGO_TARGET_DIR:-target}"
library="$target/debug/libwarpline_python.so"
if [ ! -e "$library" ]; then
  echo "there is no $library: run cargo build --workspace --all-targets" >&2
  exit 1
fi

# Named for what is in it: a change of the list makes a new one.
packages="pyarrow==26.* pandas==3.* polars==2.* pytest==9.* mypy==2.*"
venv="$cache/python/$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-$(sha256sum <<<"$packages" | cut -c 1-12)"
if [ ! -e "$venv/.complete" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  # shellcheck disable=SC2086
  "$venv/bin/pip" install -q $packages
  touch "$venv/.complete"
fi

# The package as a wheel would lay it, with the dev build in it.
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
cp -r python/warpline "$place/warpline"
ln -s "$(realpath "$library")" "$place/warpline/_native.abi3.so"
export PYTHONPATH="$place" PYTHONDONTWRITEBYTECODE=1

"$venv/bin/python" -m pytest python/tests -c python/pyproject.toml -p no:cacheprovider "$@"
"$venv/bin/python" -m pytest --doctest-modules "$place/warpline" --ignore "$place/warpline/__main__.py" \
  -c python/pyproject.toml --rootdir "$place" -p no:cacheprovider
"$venv/bin/python" -m mypy --config-file python/pyproject.toml --cache-dir "$cache/python/mypy" python/warpline
