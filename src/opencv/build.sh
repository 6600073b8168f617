#!/usr/bin/env bash
# Compiles libocelli_video against the FFmpeg and OpenCV of the system, into the setup folder, where the programs search for it:
# ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/video, or into the folder that is named.
#
# Usage: build.sh [FOLDER]
#
# pkg-config finds them; OPENCV_FLAGS and FFMPEG_FLAGS (compiler and linker flags) take precedence.
set -euo pipefail

sources="$(cd "$(dirname "$0")" && pwd)/src"
folder=${1:-${OCELLI_HOME:-${XDG_DATA_HOME:-${HOME:?HOME is not set}/.local/share}/ocelli}/video}
library=$folder/libocelli_video.so
[ "$(uname -s)" != Darwin ] || library=$folder/libocelli_video.dylib

fail() {
    printf 'error: cannot build the video library: %s\n' "$*" >&2
    exit 1
}

if [ -n "${OPENCV_FLAGS:-}" ]; then
    flags=$OPENCV_FLAGS
elif flags=$(pkg-config --cflags-only-I opencv4 2>/dev/null); then
    flags="$flags $(pkg-config --libs-only-L opencv4) -lopencv_videoio -lopencv_highgui -lopencv_core"
elif [ -e /usr/include/opencv4/opencv2/core.hpp ]; then
    flags="-I/usr/include/opencv4 -lopencv_videoio -lopencv_highgui -lopencv_core"
else
    fail "OpenCV 4 and its headers are missing (Debian: apt-get install libopencv-dev pkg-config), or set OPENCV_FLAGS"
fi
packages="libavformat libavcodec libavutil libswscale"
if [ -n "${FFMPEG_FLAGS:-}" ]; then
    flags="$flags $FFMPEG_FLAGS"
elif pkg-config --atleast-version 59.27 libavformat 2>/dev/null; then
    # Unquoted: several packages.
    flags="$flags $(pkg-config --cflags --libs $packages)"
else
    fail "FFmpeg 5.1 or later and its headers are missing (Debian: apt-get install ${packages// /-dev }-dev pkg-config), or set FFMPEG_FLAGS"
fi
# The same source with the same flags and libraries needs no second build.
built_from="$flags $(cat "$sources"/*.[ch]pp | cksum) $(pkg-config --modversion $packages 2>/dev/null | tr '\n' ' ')"
if [ -e "$library" ] && [ "$(cat "$folder/built-from" 2>/dev/null)" = "$built_from" ]; then
    printf 'video library: %s (present)\n' "$library"
    exit 0
fi
command -v "${CXX:-c++}" >/dev/null || fail "there is no C++ compiler (Debian: apt-get install g++), or set CXX"
mkdir -p "$folder" || fail "cannot create the folder $folder; set OCELLI_HOME to another one"
part=$(mktemp "$folder/.build.XXXXXX")
trap 'rm -f "$part"' EXIT
# Unquoted: several flags.
"${CXX:-c++}" -std=c++14 -O2 -shared -fPIC -fvisibility=hidden -o "$part" "$sources"/*.cpp $flags || fail "the compiler failed"
chmod 755 "$part"
mv -f "$part" "$library"
printf '%s\n' "$built_from" >"$folder/built-from"
printf 'video library: %s\n' "$library"
