#!/usr/bin/env bash
# Installs what building with OpenCV needs, on Debian and its kin: the library, and clang, which reads its headers.
# Elsewhere, or without the right to install, it says what to do. It does nothing where everything is there, and with
# --check nothing but say so by its status.
set -euo pipefail

packages=(libopencv-dev clang libclang-dev)

is_there() {
  { pkg-config --exists opencv4 || [ -e /usr/include/opencv4/opencv2/core.hpp ] || [ -n "${OPENCV_INCLUDE_PATHS:-}" ]; } 2>/dev/null \
    && command -v clang >/dev/null 2>&1 \
    && { [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null || compgen -G '/usr/lib*/libclang*.so*' >/dev/null; }
}

if [ "${1:-}" = --check ]; then
  is_there
  exit
fi
if is_there || [ "$(uname -s)" != Linux ]; then
  exit 0
fi
if command -v apt-get >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then
    root=()
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    root=(sudo)
  else
    echo "OpenCV is missing: type  sudo apt-get install ${packages[*]}  or build without it: cargo build --no-default-features" >&2
    exit 0
  fi
  echo "installing ${packages[*]}" >&2
  "${root[@]}" apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}" >/dev/null
else
  echo "OpenCV is missing: install OpenCV 4 with its headers, clang and libclang, or build without it: cargo build --no-default-features" >&2
fi
