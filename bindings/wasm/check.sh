#!/usr/bin/env bash
# Builds the page and tests it in Chromium: the package, its types, equal detections, every control.
#   check.sh [SCREENSHOT_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
page=$target/web
work=$target/web-tests

rustup target add wasm32-unknown-unknown 2>/dev/null || true
[ -x "${CHROMIUM:=/usr/bin/chromium}" ] || apt-get install -y -q chromium
export CHROMIUM
bash bindings/wasm/build.sh "$page"
mkdir -p "$work"
cp bindings/wasm/tests/* "$work"
(cd "$page/package" && npm pack --silent --pack-destination "$work")
cd "$work"
npm install --silent --no-save --no-package-lock playwright-core@1.65.1 typescript@5.9.3 ./ocelli-0.1.0.tgz
node_modules/.bin/tsc --noEmit --strict --target es2022 --module nodenext types.mts
cd - >/dev/null
# The tests are run where they are, with the packages beside them.
node "$work/scenes.mjs" "$page" "${OCELLI:-$target/quick/ocelli}"
node "$work/page.mjs" "$page" ${1:+"$1"}
