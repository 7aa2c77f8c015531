#!/usr/bin/env bash
# Checks licences, sources and advisories of all dependencies by deny.toml. Takes cargo-deny from the PATH, else the prebuilt one of its
# project; where neither can be had, or the list of advisories cannot, it says so and passes what it could not check.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.18.5
cache="${XDG_CACHE_HOME:-$HOME/.cache}/warpline"
skipped() { printf 'SKIPPED: dependencies were not checked: %s\n' "$*"; exit 0; }

deny="$(command -v cargo-deny || true)"
if [ -z "$deny" ]; then
  name="cargo-deny-$version-$(uname -m)-unknown-linux-musl"
  deny="$cache/$name/cargo-deny"
  if [ ! -x "$deny" ]; then
    mkdir -p "$cache"
    url="https://github.com/EmbarkStudios/cargo-deny/releases/download/$version/$name.tar.gz"
    curl -fsSL --max-time 60 "$url" 2>/dev/null | tar -xz -C "$cache" 2>/dev/null \
      || skipped "no cargo-deny here, and none from $url"
  fi
fi
# Those need no network but the registry, whose crates are here.
"$deny" --locked check --hide-inclusion-graph licenses sources bans
if ! "$deny" --locked fetch db >/dev/null 2>&1; then
  skipped "the list of advisories cannot be had; licences and sources are well"
fi
"$deny" --locked check --hide-inclusion-graph --disable-fetch advisories
