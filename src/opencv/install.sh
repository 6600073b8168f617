#!/usr/bin/env bash
# Installs OpenCV and its headers on Debian and its derivatives. Elsewhere, or without the right to install, it says what to
# do and fails. It does nothing if OpenCV is present.
set -euo pipefail

packages=(libopencv-dev pkg-config g++)

if pkg-config --exists opencv4 2>/dev/null || [ -e /usr/include/opencv4/opencv2/core.hpp ] || [ -n "${OPENCV_FLAGS:-}" ]; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "OpenCV is missing: install OpenCV 4 with its headers" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  root=()
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
  root=(sudo)
else
  echo "OpenCV is missing: sudo apt-get install ${packages[*]}" >&2
  exit 1
fi
echo "installing ${packages[*]}" >&2
"${root[@]}" apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
