#!/usr/bin/env bash
# Installs a wheel with pip in a new Debian root with Python and no compiler, detects there, and prints the seconds of each step.
#   clean_root.sh WHEEL FOLDER   as root; 2 GB below FOLDER, which is replaced
set -euo pipefail
wheel=$(realpath "$1")
root=$(realpath -m "$2")
project=$(cd "$(dirname "$0")/../.." && pwd)
command -v debootstrap >/dev/null || apt-get install -y -q debootstrap

mirror=$(awk '/^URIs:/ {print $2; exit} /^deb / {print $2; exit}' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
# What an interrupted run left mounted is not to be removed.
for mounted in proc sys; do
  if mountpoint -q "$root/$mounted"; then umount "$root/$mounted"; fi
done
rm -rf "$root"
debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" "$mirror" >"$root.log" 2>&1 \
  || { tail -n 5 "$root.log" >&2; exit 1; }
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
trap 'umount "$root/proc" "$root/sys"' EXIT

# The network as this machine has it.
cp /etc/resolv.conf "$root/etc/"
cp -r /etc/ssl/certs/. "$root/etc/ssl/certs/"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
mkdir "$root/try"
cp "$wheel" "$root/try/"
cp -r "$project/demos/scenes" "$root/try/scenes"
# The program of the guide, word for word.
awk '/^```python$/ {inside = 1; next} /^```$/ {if (inside) exit} inside' "$project/docs/embedding.md" >"$root/try/program.py"
# It looks for a dog and a tree.
cp "$root/try/scenes/park.png" "$root/try/street.jpg"

inside() {
  local start
  start=$(date +%s%N)
  printf '\n$ %s\n' "$1"
  chroot "$root" env -i PATH=/try/venv/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 sh -c "cd /try && $1"
  printf '# %s s\n' "$(awk "BEGIN {printf \"%.1f\", ($(date +%s%N) - $start) / 1e9}")"
}

inside 'for tool in cc gcc clang rustc cargo; do if command -v $tool; then exit 1; fi; done'
inside 'python3 -m venv venv'
inside "pip install -q './$(basename "$wheel")'"
inside 'ocelli doctor'
inside "pip install -q './$(basename "$wheel")[cpu,video]'"
inside 'ocelli doctor'
# Once with a cold cache, once with a warm one.
inside 'demo-image --image scenes/street.png --classes dog tree car -o found.png && test -s found.png'
inside 'demo-image --image scenes/street.png --classes dog tree car -o found.png'
inside 'python program.py | grep .'
inside 'demo-video --video scenes/ --classes dog tree car --track -o found.mp4 --jsonl found.jsonl && test -s found.mp4'
inside 'demo-video --video found.mp4 --classes dog tree car --jsonl again.jsonl && test -s again.jsonl'
du -sh "$root/try/venv"
