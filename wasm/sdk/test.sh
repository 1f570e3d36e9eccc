#!/bin/sh
# Builds the denylist guest with every toolchain besides Go and runs the
# conformance vectors against each. Opt-in: it needs clang and lld, a rustc with
# the wasm32-unknown-unknown target, and npm.
#   Debian: apt-get install clang-19 lld-19 rustc libstd-rust-dev-wasm32 npm
set -eu
CLANG=${CLANG:-clang-19}
LD=${WASM_LD:-wasm-ld-19}
# A rustc of rustup often comes first and without the target.
if [ -z "${RUSTC:-}" ]; then
  RUSTC=rustc
  for r in rustc /usr/bin/rustc; do
    if [ -d "$("$r" --print target-libdir --target wasm32-unknown-unknown 2>/dev/null)" ]; then RUSTC=$r; break; fi
  done
fi
ASSEMBLYSCRIPT=${ASSEMBLYSCRIPT:-assemblyscript@0.28.20}

root=$(cd "$(dirname "$0")/../.." && pwd)
for tool in "$CLANG" "$LD" "$RUSTC" npm; do
  command -v "$tool" >/dev/null || { echo "sdk-test: $tool is missing; see the head of wasm/sdk/test.sh" >&2; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
guests=$work/guests
mkdir "$guests"

"$CLANG" --target=wasm32 -O2 -nostdlib -fuse-ld="$(command -v "$LD")" -Wl,--no-entry \
  -o "$guests/c.wasm" "$root/wasm/conform/guests/c/denylist.c"

"$RUSTC" --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C strip=symbols \
  -C linker="$LD" -C link-arg=--no-fatal-warnings -o "$guests/rust.wasm" "$root/wasm/sdk/rust/denylist.rs"
# The guest of `make bench` has no vectors; that it still builds is checked here.
"$RUSTC" --edition 2021 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C strip=symbols \
  -C linker="$LD" -C link-arg=--no-fatal-warnings -o "$work/allowlist.wasm" "$root/wasm/sdk/rust/allowlist.rs"

(cd "$work" && npm install --no-audit --no-fund --silent --prefix "$work/npm" "$ASSEMBLYSCRIPT")
"$work/npm/node_modules/.bin/asc" "$root/wasm/conform/guests/assemblyscript/denylist.ts" -o "$guests/assemblyscript.wasm" -O --use abort=

cd "$root"
GATEHOUSE_GUESTS=$guests ${GO:-go} test -count=1 -v -run 'TestBuiltGuests|TestGoGuest' ./wasm/conform
