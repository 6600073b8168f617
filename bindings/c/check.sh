#!/usr/bin/env bash
# Checks the C library: symbols, programs in C and C++ by two compilers, valgrind, AddressSanitizer, the installation.
#   check.sh [quick]   quick: one compiler, without valgrind and sanitizers
# OCELLI_C_LIBRARY and OCELLI name a library and a program that are built; both are built if they are not set.
set -euo pipefail
OCELLI_C_LIBRARY=${OCELLI_C_LIBRARY:+$(realpath "$OCELLI_C_LIBRARY")} OCELLI=${OCELLI:+$(realpath "$OCELLI")}
cd "$(dirname "$0")"
quick=${1:-}
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
work=$target/c-library
given=$OCELLI_C_LIBRARY
step() { printf '\n== %(%T)T %s\n' -1 "$*"; }

if [ -z "$OCELLI_C_LIBRARY" ]; then
  cargo build -p ocelli-c
  OCELLI_C_LIBRARY=$target/debug/libocelli_c.so
fi
if [ -z "$OCELLI" ]; then
  cargo build -p ocelli-cli --no-default-features
  OCELLI=$target/debug/ocelli
fi
image=$root/demos/scenes/park.png
names=dog,tree,bicycle,person
rm -rf "$work"
mkdir -p "$work"
bash install.sh "$OCELLI_C_LIBRARY" "$work/usr"
export LD_LIBRARY_PATH=$work/usr/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

command -v pkg-config >/dev/null || apt-get install -y -q --no-install-recommends pkg-config
step symbols
nm -D --defined-only "$work/usr/lib/libocelli.so" | awk '$2 ~ /[A-Z]/ {print $3}' | sort >"$work/exported"
grep -oE '\bocelli_[a-z_]+\(' include/ocelli.h | tr -d '(' | sort -u >"$work/declared"
diff "$work/declared" <(comm -12 "$work/declared" "$work/exported") || { echo "declared and not exported"; exit 1; }
# The tests build the library with the features of the programs, which export symbols of their own.
if [ -z "$given" ] && grep -v '^ocelli_' "$work/exported"; then echo "exported, and not of this library"; exit 1; fi
objdump -p "$work/usr/lib/libocelli.so" | grep -E 'SONAME +libocelli\.so\.0$'

step "the guide has the examples"
for example in c cpp; do
  diff examples/detect.$example <(awk -v fence="\`\`\`$example" '$0 == fence {on = 1; next} /^```$/ {if (on) exit} on' "$root/docs/c.md")
done

warnings=(-pedantic -Wall -Wextra -Werror)
link=(-I "$work/usr/include" -L "$work/usr/lib" -locelli -pthread)
# build C_COMPILER C++_COMPILER SUFFIX [FLAG...]
build() {
  local c=$1 cxx=$2 suffix=$3
  shift 3
  "$c" -std=c99 "${warnings[@]}" -g "$@" tests/test.c -o "$work/test-c-$suffix" "${link[@]}"
  "$cxx" -std=c++17 "${warnings[@]}" -g "$@" tests/test.cpp -o "$work/test-cpp-$suffix" "${link[@]}"
  "$cxx" -std=c++17 "${warnings[@]}" -g "$@" -fno-exceptions -DOCELLI_NO_EXCEPTIONS tests/test.cpp \
    -o "$work/test-plain-$suffix" "${link[@]}"
}

step "C and C++, gcc"
build gcc g++ gcc
"$work/test-c-gcc" "$image" "$names" >"$work/of-c.txt"
"$OCELLI" export --quiet --checkpoint "$root/tests/golden/parity/tracker_odd" --output "$work/tracker" --force
"$work/test-c-gcc" "$image" "$names" tracker "$work/tracker"
"$work/test-cpp-gcc" "$image" "$work/tracker"
"$work/test-plain-gcc" "$image" "$work/tracker"
# The program of docs/embedding.md, in a folder with the image that it names.
awk '$0 == "```cpp" {on = 1; next} /^```$/ {if (on) exit} on' "$root/docs/embedding.md" >"$work/guide.cpp"
g++ -std=c++17 "${warnings[@]}" "$work/guide.cpp" -o "$work/guide" "${link[@]}"
cp "$image" "$work/street.jpg"
(cd "$work" && ./guide | grep -c '^dog ')

step "the detections of the program"
"$OCELLI" detect --quiet --engine embedded --threads 1 --masks --image "$image" --classes "$names" --json "$work/of-program.json"
python3 tests/parity.py "$work/of-c.txt" "$work/of-program.json"

step "examples, found by pkg-config"
PKG_CONFIG_PATH=$work/usr/lib/pkgconfig
export PKG_CONFIG_PATH
read -ra flags <<<"$(pkg-config --cflags --libs ocelli)"
gcc -std=c99 "${warnings[@]}" examples/detect.c -o "$work/detect-c" "${flags[@]}"
g++ -std=c++17 "${warnings[@]}" examples/detect.cpp -o "$work/detect-cpp" "${flags[@]}"
g++ -std=c++17 "${warnings[@]}" examples/robot.cpp -o "$work/robot" "${flags[@]}" -pthread
"$work/detect-c" "$image"
"$work/detect-cpp" "$image"
if "$work/detect-c" /nowhere.png 2>"$work/error"; then echo "an error was expected"; exit 1; fi
grep -F "error: " "$work/error" | grep -F /nowhere.png
"$work/robot" "$image" 30 | tail -n 3

if [ "$quick" = quick ]; then
  step done
  exit
fi

for tool in clang valgrind cmake; do
  command -v "$tool" >/dev/null || apt-get install -y -q --no-install-recommends "$tool"
done
# The sanitizers' libraries of Debian's clang.
if ! compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.asan-x86_64.a' >/dev/null; then
  apt-get install -y -q --no-install-recommends "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
fi

step "C and C++, clang"
build clang clang++ clang
"$work/test-c-clang" "$image" "$names" >"$work/of-clang.txt"
diff <(grep -v '^{' "$work/of-c.txt") <(grep -v '^{' "$work/of-clang.txt")
"$work/test-cpp-clang" "$image" "$work/tracker"
"$work/test-plain-clang" "$image" "$work/tracker"

step "AddressSanitizer and UndefinedBehaviorSanitizer"
build clang clang++ asan -fsanitize=address,undefined -fno-sanitize-recover=all
"$work/test-c-asan" "$image" "$names" >/dev/null
"$work/test-c-asan" "$image" "$names" tracker "$work/tracker"
"$work/test-cpp-asan" "$image" "$work/tracker"

step "memory over 1000 frames"
"$work/test-c-gcc" "$image" dog 1000 >/dev/null

step "valgrind, one frame"
# It computes fused multiply-adds in software: a frame takes minutes.
valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect \
  --errors-for-leak-kinds=definite,indirect "$work/test-c-gcc" "$image" dog one-frame

step "examples, found by CMake"
cmake -S examples -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/usr" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/cmake" >/dev/null
env -u LD_LIBRARY_PATH "$work/cmake/detect-c" "$image"
env -u LD_LIBRARY_PATH "$work/cmake/detect-cpp" "$image"
env -u LD_LIBRARY_PATH "$work/cmake/robot" "$image" 30 | tail -n 1

step "an installation for a package"
DESTDIR=$work/package bash install.sh "$OCELLI_C_LIBRARY" /usr
grep -x 'prefix=/usr' "$work/package/usr/lib/pkgconfig/ocelli.pc"
test "$(readlink "$work/package/usr/lib/libocelli.so")" = libocelli.so.0
step done
