#!/usr/bin/env bash
# Compiles libocelli_tensorrt and libocelli_tensorrt_rtx, Ocelli's parts for NVIDIA's two TensorRTs, into the setup folder,
# where the programs search for them: ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/tensorrt-part, or into the folder
# that is named. It takes a C++ compiler and a second; neither TensorRT nor a GPU is needed.
#
# Usage: build.sh [FOLDER]
#
# The headers are those of the crate trtx-sys (NVIDIA's, Apache-2.0), which cargo downloads and nothing else of which is used;
# TENSORRT_HEADERS, a folder with the same content, takes precedence.
set -euo pipefail

source="$(cd "$(dirname "$0")" && pwd)/library.cpp"
folder=${1:-${OCELLI_HOME:-${XDG_DATA_HOME:-${HOME:?HOME is not set}/.local/share}/ocelli}/tensorrt-part}
crate=trtx-sys
version=0.9.1

fail() {
    printf "error: cannot build Ocelli's parts for TensorRT: %s\n" "$*" >&2
    exit 1
}

# The folder of the crate's sources, if it was downloaded.
unpacked() {
    local found
    for found in "${CARGO_HOME:-${HOME:-}/.cargo}"/registry/src/*/"$crate-$version"*/TensorRT-Headers; do
        [ ! -d "$found" ] || printf '%s' "$found"
        return 0
    done
}

[ "$(uname -s)" = Linux ] || fail "this works on Linux only"
headers=${TENSORRT_HEADERS:-$(unpacked)}
if [ -z "$headers" ]; then
    # Outside of the workspace, whose crates have nothing to do with it.
    (cd / && cargo info --quiet "$crate@$version" >/dev/null 2>&1) || true
    headers=$(unpacked)
    [ -n "$headers" ] || fail "cargo cannot download the headers; set TENSORRT_HEADERS to the folder TensorRT-Headers of the crate $crate $version"
fi

mkdir -p "$folder" || fail "cannot create the folder $folder; set OCELLI_HOME to another one"
part=$(mktemp "$folder/.build.XXXXXX")
trap 'rm -f "$part"' EXIT
for pair in ocelli_tensorrt=TRT-Enterprise-11.4 ocelli_tensorrt_rtx=TRT-RTX-1.7; do
    library=$folder/lib${pair%=*}.so
    include=$headers/${pair#*=}
    [ -e "$include/NvInfer.h" ] || fail "there is no $include/NvInfer.h"
    # The same source with the same headers needs no second build.
    built_from="${pair#*=} $(cat "$source" "$include/NvInferVersion.h" | cksum)"
    if [ -e "$library" ] && [ "$(cat "$folder/${pair%=*}.built-from" 2>/dev/null)" = "$built_from" ]; then
        printf 'part for TensorRT: %s (present)\n' "$library"
        continue
    fi
    command -v "${CXX:-c++}" >/dev/null || fail "there is no C++ compiler (Debian: apt-get install g++), or set CXX"
    # Timing caches are deprecated in TensorRT for RTX, where the program uses none.
    "${CXX:-c++}" -std=c++17 -O2 -Wall -Wextra -Wno-deprecated-declarations -shared -fPIC -fvisibility=hidden \
        -isystem "$include" -isystem "$headers" -o "$part" "$source" || fail "the compiler failed"
    chmod 755 "$part"
    mv -f "$part" "$library"
    printf '%s\n' "$built_from" >"$folder/${pair%=*}.built-from"
    printf 'part for TensorRT: %s\n' "$library"
done
