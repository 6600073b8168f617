#!/usr/bin/env bash
# Builds the npm package and the page that uses it: `make web`.
#   build.sh [FOLDER]   by default target/web: the page, and package/ in it
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
out=${1:-target/web}

# A toolchain may build the standard library itself: CARGO_UNSTABLE_BUILD_STD=std,panic_abort.
if [ -z "${CARGO_UNSTABLE_BUILD_STD:-}" ] && ! rustc --print target-libdir --target wasm32-unknown-unknown | xargs test -d; then
  echo "Rust has no target wasm32-unknown-unknown: run \`rustup target add wasm32-unknown-unknown\`" >&2
  exit 1
fi
build() { (cd bindings/wasm && CARGO_TARGET_DIR="$1" cargo build --release "${@:2}"); }
build "$target"
# Browsers with relaxed SIMD get a build of their own, and fetch that one alone.
build "$target/relaxed" --config 'target.wasm32-unknown-unknown.rustflags=["-C", "target-feature=+relaxed-simd"]'

CARGO_TARGET_DIR="$target/tools" cargo build --manifest-path bindings/wasm/bindgen/Cargo.toml

rm -rf "$out"
mkdir -p "$out/package/relaxed" "$out/scenes"
bindgen=$target/tools/debug/bindgen-for-web
"$bindgen" "$target/wasm32-unknown-unknown/release/ocelli_wasm.wasm" "$out/package"
"$bindgen" "$target/relaxed/wasm32-unknown-unknown/release/ocelli_wasm.wasm" "$out/package/relaxed"
rm -f "$out/package/ocelli_wasm_bg.wasm.d.ts" "$out/package/relaxed/"*.d.ts
cp bindings/wasm/index.js bindings/wasm/index.d.ts bindings/wasm/package.json LICENSE "$out/package"
if [ -z "${OCELLI:-}" ]; then
  cargo build --profile quick -p ocelli-cli --no-default-features
  OCELLI=$target/quick/ocelli
fi
# Half precision halves what a visitor fetches; the engine computes in 32 bits all the same.
"$OCELLI" export --checkpoint built-in --precision fp16 --output "$out/package/model"
cp demos/web/*.html demos/web/*.css demos/web/*.js "$out"
cp demos/scenes/*.png "$out/scenes"
du -sh "$out/package/ocelli_wasm_bg.wasm" "$out/package/model" "$out"
echo "serve it: python3 -m http.server --bind 127.0.0.1 --directory $out, then open http://localhost:8000"
