#!/usr/bin/env bash
# Feeds damaged videos to the reader of the video library, built with the sanitizers of addresses and undefined behaviour. What
# fails remains in target/video-fuzz. A case may take a minute and 1 GiB.
#
# Usage: video.sh CASES SEED FILE…
set -euo pipefail
cases=$1 seed=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$root/target/video-fuzz
mkdir -p "$folder"
# Unquoted: several flags.
"${CXX:-c++}" -std=c++14 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -I"$root/src/opencv/src" -o "$folder/video" \
    "$root/tests/fuzz/video.cpp" "$root/src/opencv/src/reader.cpp" \
    $(pkg-config --cflags --libs libavformat libavcodec libavutil libswscale)
ASAN_OPTIONS=hard_rss_limit_mb=1024 "$folder/video" "$folder" "$cases" "$seed" "$@"
