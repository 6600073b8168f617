#!/usr/bin/env bash
# Installs FFmpeg's libraries and their headers on Debian and its derivatives, and OpenCV unless `video` alone is asked for.
# Elsewhere, or without the right to install, it says what to do and fails. It does nothing if they are present.
#
# Usage: install.sh [video]
set -euo pipefail

# Cameras need libavdevice, which is not linked.
packages=(libavformat-dev libavcodec-dev libavutil-dev libswscale-dev libavdevice-dev pkg-config g++)
names="FFmpeg 5.1 or later"

has_opencv() {
  pkg-config --exists opencv4 2>/dev/null || [ -e /usr/include/opencv4/opencv2/core.hpp ] || [ -n "${OPENCV_FLAGS:-}" ]
}
has_ffmpeg() {
  pkg-config --exists libavformat libavcodec libavutil libswscale 2>/dev/null || [ -n "${FFMPEG_FLAGS:-}" ]
}
if [ "${1:-}" != video ]; then
  packages+=(libopencv-dev)
  names="$names and OpenCV 4"
fi
# Root gets what cameras need, too; without the right to install, files and streams have to do.
has_cameras() {
  ldconfig -p 2>/dev/null | grep 'libavdevice\.so' >/dev/null || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1
}
if has_ffmpeg && has_cameras && { [ "${1:-}" = video ] || has_opencv; }; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "install $names, with their headers" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  root=()
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  root=(sudo)
else
  echo "$names: sudo apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "installing ${packages[*]}" >&2
"${root[@]}" apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
