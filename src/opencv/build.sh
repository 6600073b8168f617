#!/usr/bin/env bash
# Compiles libocelli_video against the FFmpeg of the system, and libocelli_window against its OpenCV, if there is one, into the setup
# folder, where the programs search for them: ${OCELLI_HOME:-${XDG_DATA_HOME:-~/.local/share}/ocelli}/video, or into the folder that is
# named.
#
# Usage: build.sh [FOLDER]
#
# pkg-config finds FFmpeg and OpenCV; FFMPEG_FLAGS and OPENCV_FLAGS (compiler and linker flags) take precedence.
set -euo pipefail

sources="$(cd "$(dirname "$0")" && pwd)/src"
folder=${1:-${OCELLI_HOME:-${XDG_DATA_HOME:-${HOME:?HOME is not set}/.local/share}/ocelli}/video}
suffix=so
[ "$(uname -s)" != Darwin ] || suffix=dylib

# That of windows may be missing.
fail() {
    if [ "${name:-}" = window ]; then
        printf 'window library: not built: %s\n' "$*" >&2
        exit 0
    fi
    printf 'error: cannot build the video library: %s\n' "$*" >&2
    exit 1
}

# compile NAME FLAGS SOURCE...: the same sources with the same flags and libraries need no second build.
compile() {
    local name=$1 flags=$2 library=$folder/libocelli_$1.$suffix built_from
    shift 2
    built_from="$flags $(cat "$@" "$sources"/*.hpp | cksum) $(pkg-config --modversion $packages 2>/dev/null | tr '\n' ' ')"
    if [ -e "$library" ] && [ "$(cat "$folder/$name-from" 2>/dev/null)" = "$built_from" ]; then
        printf '%s library: %s (present)\n' "$name" "$library"
        return
    fi
    command -v "${CXX:-c++}" >/dev/null || fail "there is no C++ compiler (Debian: apt-get install g++), or set CXX"
    mkdir -p "$folder" || fail "cannot create the folder $folder; set OCELLI_HOME to another one"
    part=$(mktemp "$folder/.build.XXXXXX")
    trap 'rm -f "$part"' EXIT
    # Unquoted: several flags.
    "${CXX:-c++}" -std=c++14 -O2 -shared -fPIC -fvisibility=hidden -o "$part" "$@" $flags || fail "the compiler failed"
    chmod 755 "$part"
    mv -f "$part" "$library"
    printf '%s\n' "$built_from" >"$folder/$name-from"
    printf '%s library: %s\n' "$name" "$library"
}

packages="libavformat libavcodec libavutil libswscale"
if [ -n "${FFMPEG_FLAGS:-}" ]; then
    flags=$FFMPEG_FLAGS
elif pkg-config --atleast-version 59.27 libavformat 2>/dev/null; then
    # Unquoted: several packages.
    flags="$(pkg-config --cflags --libs $packages)"
else
    fail "FFmpeg 5.1 or later and its headers are missing (Debian: apt-get install ${packages// /-dev }-dev pkg-config), or set FFMPEG_FLAGS"
fi
compile video "$flags -ldl" "$sources"/{library,reader,writer}.cpp

packages=
if [ -n "${OPENCV_FLAGS:-}" ]; then
    flags=$OPENCV_FLAGS
elif flags=$(pkg-config --cflags-only-I opencv4 2>/dev/null); then
    packages=opencv4
    flags="$flags $(pkg-config --libs-only-L opencv4) -lopencv_highgui -lopencv_core"
elif [ -e /usr/include/opencv4/opencv2/highgui.hpp ]; then
    flags="-I/usr/include/opencv4 -lopencv_highgui -lopencv_core"
else
    printf 'window library: not built: windows need OpenCV 4 and its headers (Debian: apt-get install libopencv-dev), or set OPENCV_FLAGS\n' >&2
    exit 0
fi
compile window "$flags" "$sources/window.cpp"
