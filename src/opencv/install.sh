#!/usr/bin/env bash
# Installs FFmpeg's libraries, OpenCV and their headers on Debian and its derivatives. Elsewhere, or without the right to
# install, it says what to do and fails. It does nothing if they are present.
set -euo pipefail

packages=(libopencv-dev libavformat-dev libavcodec-dev libavutil-dev libswscale-dev pkg-config g++)

has_opencv() {
  pkg-config --exists opencv4 2>/dev/null || [ -e /usr/include/opencv4/opencv2/core.hpp ] || [ -n "${OPENCV_FLAGS:-}" ]
}
has_ffmpeg() {
  pkg-config --exists libavformat libavcodec libavutil libswscale 2>/dev/null || [ -n "${FFMPEG_FLAGS:-}" ]
}
if has_opencv && has_ffmpeg; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "FFmpeg or OpenCV is missing: install FFmpeg 5.1 or later and OpenCV 4, with their headers" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  root=()
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  root=(sudo)
else
  echo "FFmpeg or OpenCV is missing: sudo apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "installing ${packages[*]}" >&2
"${root[@]}" apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
