#!/usr/bin/env bash
# Installs the C library, its headers, and what pkg-config and CMake find it by.
#   install.sh LIBRARY PREFIX   the built library, libocelli_c.so; DESTDIR is put before PREFIX
set -euo pipefail
library=$1 prefix=$2
here=$(cd "$(dirname "$0")" && pwd)
to=${DESTDIR:-}$prefix

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
abi=$(sed -n 's/^#define OCELLI_ABI_VERSION //p' "$here/include/ocelli.h")
fill() {
  sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@MINOR@|${version%.*}|; s|@ABI@|$abi|" "$here/packaging/$1" >"$2/$1"
  chmod 644 "$2/$1"
}

install -d "$to/lib/pkgconfig" "$to/lib/cmake/ocelli" "$to/include"
install -m 755 "$library" "$to/lib/libocelli.so.$version"
ln -sf "libocelli.so.$version" "$to/lib/libocelli.so.$abi"
ln -sf "libocelli.so.$abi" "$to/lib/libocelli.so"
install -m 644 "$here/include/ocelli.h" "$here/include/ocelli.hpp" "$to/include"
fill ocelli.pc "$to/lib/pkgconfig"
fill ocelliConfig.cmake "$to/lib/cmake/ocelli"
fill ocelliConfigVersion.cmake "$to/lib/cmake/ocelli"
