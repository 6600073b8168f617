#!/usr/bin/env bash
# Compiles fake_cuda.c into a folder as NVIDIA's driver and its video decoder, for a process that has it in LD_LIBRARY_PATH.
#
# Usage: fake_cuda.sh FOLDER
set -euo pipefail

source="$(cd "$(dirname "$0")" && pwd)/fake_cuda.c"
folder=$1

# compile LIBRARY PATTERN FLAG...: FFmpeg looks up more functions than it calls, and takes no library that lacks one.
compile() {
    local library=$1 pattern=$2
    shift 2
    # shellcheck disable=SC2046 # split into files
    strings $("${CC:-cc}" -print-file-name=libavutil.so) $("${CC:-cc}" -print-file-name=libavcodec.so) | grep -xE "$pattern" | sort -u |
        while read -r name; do
            grep -q "^int $name(" "$source" || printf 'int %s(void) { return 0; }\n' "$name"
        done >"$folder/stubs.c"
    "${CC:-cc}" -shared -fPIC -o "$folder/$library" "$@" "$source" "$folder/stubs.c"
}

compile libcuda.so.1 'cu[A-Z][A-Za-z0-9]+(_v[0-9]+)?'
compile libnvcuvid.so.1 'cuvid[A-Z][A-Za-z0-9]+' -DDECODER
