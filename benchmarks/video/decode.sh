#!/usr/bin/env bash
# Decodes a drawn video of 1080p to RGB with the video library and with OpenCV, in turns, on two cores.
#
# Usage: decode.sh FOLDER [ROUNDS]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1 rounds=${2:-9}
mkdir -p "$folder"
[ -e "$folder/1080p.mp4" ] || ffmpeg -hide_banner -loglevel error -nostdin -f lavfi -i testsrc2=size=1920x1080:rate=25:duration=12 \
  -vf noise=alls=6:allf=t -c:v libx264 -preset veryfast -b:v 8M -maxrate 8M -bufsize 8M -pix_fmt yuv420p "$folder/1080p.mp4"
packages="libavformat libavcodec libavutil libswscale"
# Unquoted: several packages and flags.
"${CXX:-c++}" -std=c++14 -O2 -I"$here/../../src/opencv/src" -I/usr/include/opencv4 -o "$folder/decode" "$here/decode.cpp" \
  "$here/../../src/opencv/src/reader.cpp" $(pkg-config --cflags --libs $packages) -lopencv_videoio -lopencv_imgproc -lopencv_core -ldl
taskset -c 0,1 "$folder/decode" "$folder/1080p.mp4" "$rounds"
