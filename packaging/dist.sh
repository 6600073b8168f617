#!/usr/bin/env bash
# Packages for people who do not build Rust, into target/dist: a tar of the programs, their completions and man pages, and the C
# library; a Debian package; the Python wheel. All run with glibc 2.28 or later, which is checked.
#   dist.sh          as `make dist`
#   dist.sh check    installs them in a new root of an older Debian (as root; 1 GB below target/dist)
# Zig links, since it has the glibc of every age; it comes through pip, into target/dist/tools.
set -euo pipefail
cd "$(dirname "$0")/.."
glibc=2.28
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
dist=$PWD/target/dist
tar=$dist/ocelli-$version-$machine-linux.tar.gz
deb=$dist/ocelli_${version}_$(dpkg --print-architecture 2>/dev/null || echo "$machine").deb
step() { printf '\n== %(%T)T %s\n' -1 "$*"; }

# The newest version of glibc whose functions a file calls.
newest_glibc() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1 | cut -d _ -f 2; }

# Fails if a file needs a later glibc than is promised.
old_enough() {
  local file needs
  for file; do
    needs=$(newest_glibc "$file")
    printf '%-60s glibc %s, %s\n' "${file#"$dist"/}" "$needs" "$(du -hL "$file" | cut -f 1)"
    [ "$(printf '%s\n' "$glibc" "$needs" | sort -V | tail -n 1)" = "$glibc" ] || { echo "error: $file needs glibc $needs" >&2; exit 1; }
  done
}

tools() {
  step tools
  python3 -m venv "$dist/tools"
  "$dist/tools/bin/pip" install -q "ziglang==0.16.0" "cargo-zigbuild==0.24.1" "maturin==1.16.0" "auditwheel==6.8.2" "twine==7.0.0"
  # The compiler of the parts for TensorRT.
  printf '#!/bin/sh\nexec "%s" -m ziglang c++ -Wno-nullability-completeness -target %s-linux-gnu.%s "$@"\n' "$dist/tools/bin/python" "$machine" "$glibc" >"$dist/tools/bin/zig-c++"
  chmod +x "$dist/tools/bin/zig-c++"
  export PATH=$dist/tools/bin:$PATH
}

# What both packages hold, below PREFIX: the video library is left out, which only works with the FFmpeg that it was built with.
stage() {
  local target=$machine-unknown-linux-gnu
  CARGO_TARGET_DIR=$dist/build CXX=$dist/tools/bin/zig-c++ make --no-print-directory install-programs install-c \
    DESTDIR="$1" PREFIX="$2" CARGO_BUILD="cargo zigbuild --target $target.$glibc" BUILT="$dist/build/$target/release"
  install -d "$1$2/share/doc/ocelli"
  cp README.md LICENSE CHANGELOG.md "$1$2/share/doc/ocelli"
}

archive() {
  step "the tar"
  rm -rf "$dist/tar"
  stage "$dist/tar/ocelli-$version" /
  # The tar can be unpacked anywhere.
  sed -i "s|^prefix=.*|prefix=\${pcfiledir}/../..|" "$dist/tar/ocelli-$version/lib/pkgconfig/ocelli.pc"
  old_enough "$dist/tar/ocelli-$version"/bin/* "$dist/tar/ocelli-$version"/lib/*.so
  tar -C "$dist/tar" --owner 0 --group 0 -czf "$tar" "ocelli-$version"
}

debian() {
  step "the Debian package"
  local root=$dist/deb
  rm -rf "$root"
  stage "$root" /usr
  gzip -9nr "$root/usr/share/man"
  gzip -9n "$root/usr/share/doc/ocelli/CHANGELOG.md"
  mv "$root/usr/share/doc/ocelli/LICENSE" "$root/usr/share/doc/ocelli/copyright"
  mkdir "$root/DEBIAN"
  cat >"$root/DEBIAN/control" <<END
Package: ocelli
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: The Ocelli authors <ocelli@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Depends: libc6 (>= $glibc), libgcc-s1 | libgcc1
Section: science
Priority: optional
Description: open-vocabulary object detection in images and video
 Finds the objects that a text prompt names, follows them through videos, and
 labels data sets. A small model of drawn pictograms is built in.
 .
 Video files need the video library, which is built for the FFmpeg of the machine.
END
  # ldconfig finds the C library.
  printf 'activate-noawait ldconfig\n' >"$root/DEBIAN/triggers"
  dpkg-deb --root-owner-group --build "$root" "$deb" >/dev/null
}

wheel() {
  step "the wheel"
  local python=bindings/python
  trap 'rm -f bindings/python/python/ocelli/libocelli_tensorrt*.so' EXIT
  CXX=$dist/tools/bin/zig-c++ bash engines/tensorrt/build.sh "$dist/build/tensorrt"
  cp "$dist"/build/tensorrt/libocelli_tensorrt*.so $python/python/ocelli/
  rm -f "$dist"/*.whl
  (cd $python && CARGO_TARGET_DIR=$dist/build maturin build --quiet --release --zig --compatibility "manylinux_${glibc/./_}" --out "$dist")
  auditwheel show "$dist"/ocelli_vision-*.whl
  twine check --strict "$dist"/ocelli_vision-*.whl
}

check() {
  step "an older Debian"
  local root=$dist/root inside
  command -v debootstrap >/dev/null || apt-get install -y -q debootstrap
  local mirror
  # That of this machine, which has to be one of Debian.
  mirror=$(grep -ohE '^(URIs:|deb ).*' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | grep -oE 'https?://[^ ]+' | head -n 1 || true)
  rm -rf "$root"
  debootstrap --variant=minbase bullseye "$root" "$mirror" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }
  mkdir "$root/try"
  cp demos/scenes/park.png "$tar" "$deb" "$root/try"
  inside() {
    printf '\n$ %s\n' "$1"
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 sh -ec "cd /try && $1"
  }
  inside "ldd --version | head -n 1"
  inside "tar xzf $(basename "$tar") && ocelli-$version/bin/ocelli detect --image park.png --classes dog -o tar.png"
  inside "dpkg -i $(basename "$deb")"
  inside "ocelli --version && demo-image --version && ocelli doctor && ldconfig -p | grep libocelli"
  inside "ocelli detect --image park.png --classes dog tree -o deb.png && test -s deb.png"
  inside "dpkg -r ocelli && ! command -v ocelli"
}

mkdir -p "$dist"
if [ "${1:-}" = check ]; then
  check
else
  tools
  archive
  debian
  wheel
  step "made"
fi
ls -lh "$tar" "$deb" "$dist"/*.whl
