#!/usr/bin/env bash
# Checks licences, sources and advisories of all dependencies by deny.toml, with the cargo-deny on the PATH (`cargo install --locked
# cargo-deny`). Without one, or without the list of advisories, it says what it could not check.
set -euo pipefail
cd "$(dirname "$0")/.."

skipped() { printf 'SKIPPED: %s\n' "$*"; exit 0; }

command -v cargo-deny >/dev/null || skipped "dependencies were not checked: there is no cargo-deny"
# These need no network but the registry, whose crates are here.
cargo-deny --locked check --hide-inclusion-graph licenses sources bans
cargo-deny --locked fetch db >/dev/null 2>&1 \
  || skipped "the list of advisories cannot be had; licences and sources are well"
cargo-deny --locked check --hide-inclusion-graph --disable-fetch advisories
