#!/usr/bin/env bash
# Installs OpenCV and its headers on Debian and its derivatives. Elsewhere, or without the right to install, it says what to
# do. It does nothing if OpenCV is present; with --check it only reports that by its exit status.
set -euo pipefail

packages=(libopencv-dev pkg-config)

is_present() {
  { pkg-config --exists opencv4 || [ -e /usr/include/opencv4/opencv2/core.hpp ] || [ -n "${OPENCV_INCLUDE_PATHS:-}" ]; } 2>/dev/null
}

if [ "${1:-}" = --check ]; then
  is_present
  exit
fi
if is_present || [ "$(uname -s)" != Linux ]; then
  exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then
    root=()
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root=(sudo)
  else
    echo "OpenCV is missing: sudo apt-get install ${packages[*]}, or build without it: cargo build --no-default-features" >&2
    exit 0
  fi
  echo "installing ${packages[*]}" >&2
  "${root[@]}" apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
else
  echo "OpenCV is missing: install OpenCV 4 with its headers, or build without it: cargo build --no-default-features" >&2
fi
