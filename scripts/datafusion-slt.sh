#!/usr/bin/env bash
# Run DataFusion's own sqllogictest files on Warpline and on plain DataFusion, and compare the answers.
#
#   scripts/datafusion-slt.sh [--all] [--no-data] [PART-OF-A-PATH,…]     a sample of the files, all, or those that are named
#
# The files come in the crate datafusion-sqllogictest, of the version that Cargo.lock has of DataFusion; cargo fetches it. The
# data that some of them read is in repositories of its own: arrow-testing, parquet-testing and DataFusion's. For what cannot
# be cloned, or is not wanted (--no-data), and for TPC-H's tables there are stand-ins where many statements need it; the rest of
# the statements are refused by both sides.
set -euo pipefail
cd "$(dirname "$0")/.."

root="${CARGO_TARGET_DIR:-$PWD/target}/datafusion-slt"
version="$(sed -n '/^name = "datafusion"$/{n;s/version = "\(.*\)"/\1/p;}' Cargo.lock)"
runner="$root/datafusion/sqllogictest"
tests=a_sample
data=true
while [ $# -gt 0 ]; do
  case "$1" in
    --all) tests=all ;;
    --no-data) data=false ;;
    -*)
      sed -n '2,4p' "$0" >&2
      exit 2
      ;;
    *)
      tests=all
      export WARPLINE_SLT_FILES="$1"
      ;;
  esac
  shift
done

archive() {
  find "${CARGO_HOME:-$HOME/.cargo}/registry/cache" -name "datafusion-sqllogictest-$version.crate" 2>/dev/null | head -n 1
}
if [ ! -d "$runner/test_files" ]; then
  # Asking for what a crate is fetches it, checksum compared, without making it a dependency.
  [ -n "$(archive)" ] || cargo info --quiet "datafusion-sqllogictest@$version" >/dev/null
  mkdir -p "$runner"
  tar xzf "$(archive)" -C "$runner" --strip-components 1
fi

clone() { # URL FOLDER [BRANCH]
  [ -d "$2" ] || GIT_TERMINAL_PROMPT=0 timeout 600 git clone --quiet --depth 1 ${3:+--branch "$3"} "$1" "$2" ||
    echo "without $1: many statements that read its data are refused by both sides" >&2
}
if $data; then
  clone https://github.com/apache/arrow-testing "$root/testing"
  clone https://github.com/apache/parquet-testing "$root/parquet-testing"
  if [ ! -f "$root/datafusion/core/Cargo.toml" ]; then # what is there without it are stand-ins
    clone https://github.com/apache/datafusion "$root/.datafusion" "$version"
    if [ -d "$root/.datafusion" ]; then
      rm -rf "$root/datafusion/core"
      mv "$root/.datafusion/datafusion/core" "$root/datafusion/core"
      rm -rf "$root/.datafusion"
    fi
  fi
fi

export WARPLINE_DATAFUSION_SLT="$runner"
# One after the other: both write to the same folders.
cargo test --workspace --locked --test it -- \
  "datafusion_files::$tests" --ignored --nocapture --test-threads 1
