#!/usr/bin/env bash
# Builds what a release consists of into target/dist (or $CARGO_TARGET_DIR/dist): a tarball with the program, its manual, licences and SBOM,
# the wheel of the Python package, and checksums.
#
#   scripts/release.sh                  the release: the first build takes as long as DataFusion does
#   PROFILE=dev scripts/release.sh      of the dev build, to try the script: large and slow, not to be given away
#   SKIP_WHEEL=1, ALLOW_DIRTY=1         without the wheel; from a checkout with changes
#
# The commit is in `warpline --version`; outside of a checkout WARPLINE_COMMIT names it. Linux, glibc no older than here is needed to run it.
set -euo pipefail
cd "$(dirname "$0")/.."

profile="${PROFILE:-release}"
target="${CARGO_TARGET_DIR:-$PWD/target}"
dist="$target/dist"
case "$profile" in
  dev) built="$target/debug" ;;
  release) built="$target/release" ;;
  *) echo "release.sh: PROFILE is release or dev" >&2; exit 1 ;;
esac
for tool in cargo strip tar gzip sha256sum python3; do
  command -v "$tool" >/dev/null || { echo "release.sh: $tool is missing; install it" >&2; exit 1; }
done

version="$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
triple="$(rustc -vV | sed -n 's/^host: //p')"
name="warpline-$version-linux-${triple%%-*}"
if ! grep -q "^## $version\b" CHANGELOG.md; then
  echo "release.sh: CHANGELOG.md has no section '## $version'" >&2
  exit 1
fi
if git rev-parse --git-dir >/dev/null 2>&1; then
  if [ -z "${ALLOW_DIRTY:-}" ] && [ -n "$(git status --porcelain --untracked-files=no)" ]; then
    echo "release.sh: the checkout has changes: commit them, or set ALLOW_DIRTY=1" >&2
    exit 1
  fi
  WARPLINE_COMMIT="${WARPLINE_COMMIT:-commit $(git rev-parse --short=12 HEAD)}"
  # The time of the commit, so that the same commit makes the same files.
  SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
fi
export WARPLINE_COMMIT="${WARPLINE_COMMIT:-}" SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(date +%s)}"

rm -rf "$dist"
mkdir -p "$dist/$name/bin" "$dist/$name/docs"

# The features of the workspace, so that what is compiled serves the wheel, too.
cargo build --locked --profile "$profile" -p warpline -p warpline-python
cp "$built/warpline" "$dist/$name/bin/warpline"
strip "$dist/$name/bin/warpline"
cp README.md CHANGELOG.md LICENSE "$dist/$name/"
cp docs/*.md docs/*.svg "$dist/$name/docs/"
scripts/sbom.py --package warpline --target "$triple" \
  --sbom "$dist/$name/sbom.cdx.json" --licences "$dist/$name/THIRD-PARTY-LICENCES.txt"
cp "$dist/$name/sbom.cdx.json" "$dist/$name.cdx.json"

# What goes out has to start, and say what it is.
"$dist/$name/bin/warpline" --version
"$dist/$name/bin/warpline" --device cpu -q --format csv -c "SELECT 1 AS one" | grep -qx 1

tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$dist" -cf - "$name" \
  | gzip -n -9 >"$dist/$name.tar.gz"
rm -rf "${dist:?}/$name"

if [ -z "${SKIP_WHEEL:-}" ]; then
  rm -rf "$target/wheels"
  scripts/wheel.sh --profile "$profile"
  cp "$target"/wheels/*.whl "$dist/"
fi

(cd "$dist" && sha256sum -- *.tar.gz *.cdx.json $(ls -- *.whl 2>/dev/null) >SHA256SUMS)
ls -l "$dist"
