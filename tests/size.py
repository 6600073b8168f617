#!/usr/bin/env python3
"""Counts code lines of production Rust by crate, the longest function and the words of README.md, and fails above the limits.

    python3 tests/size.py

Counted are tracked files without tests (folders, modules and items for tests), benchmarks, integrations, training, examples and fuzzers;
blank lines and comments do not count. The limit only goes down: who adds a feature removes as much elsewhere.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

LIMIT = 72_141
# Of a function, and of README.md.
FUNCTION_LINES = 90
README_WORDS = 900

ROOT = Path(__file__).resolve().parent.parent
NOT_PRODUCTION = re.compile(
    r"(^|/)(tests|benches|examples|fuzz)/|(^|/)tests\.rs$|^(benchmarks|integrations|training)/|(^|/)build\.rs$"
)
FOR_TESTS = r'test|any\(test, *feature *= *"test-support"\)|feature *= *"test-support"|all\(test[^)]*\)'
TEST_MODULE = re.compile(rf"#\[cfg\((?:{FOR_TESTS})\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?mod (\w+);")
FUNCTION = re.compile(r"(\s*)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")
ITEM = re.compile(r"\s*(pub(\([^)]*\))? )?(mod|fn|impl|use|struct|const)\b")


def test_files(files: list[str]) -> tuple[str, ...]:
    """Files and folders of modules that are compiled for tests only, as starts of paths."""
    found = []
    for name in files:
        inside = name.rsplit("/", 1)[0] if name.endswith(("lib.rs", "main.rs")) else name.removesuffix(".rs")
        for module in TEST_MODULE.findall((ROOT / name).read_text()):
            found += [f"{inside}/{module}.rs", f"{inside}/{module}/"]
    return tuple(found)


def code_lines(text: str) -> list[str]:
    """Lines that are neither blank, nor a comment, nor part of an item for tests."""
    lines, code, at, in_comment = text.split("\n"), [], 0, False
    while at < len(lines):
        line = lines[at].strip()
        if line == "#[cfg(test)]":
            end = end_of_item(lines, at + 1)
            if end is not None:
                at = end + 1
                continue
        if in_comment:
            in_comment = "*/" not in line
        elif line.startswith("/*"):
            in_comment = "*/" not in line
        elif line and not line.startswith("//"):
            code.append(lines[at])
        at += 1
    return code


def end_of_item(lines: list[str], start: int) -> int | None:
    """The last line of the item that starts here, behind its attributes."""
    while start < len(lines) and lines[start].strip().startswith("#["):
        start += 1
    if start == len(lines) or not ITEM.match(lines[start]):
        return None
    if lines[start].rstrip().endswith(";"):
        return start
    indent = len(lines[start]) - len(lines[start].lstrip())
    end = start + 1
    while end < len(lines) and not (
        lines[end].strip().startswith("}") and len(lines[end]) - len(lines[end].lstrip()) == indent
    ):
        end += 1
    return end


def production() -> dict[str, list[str]]:
    """The code lines of each file that counts."""
    files = subprocess.run(["git", "ls-files", "*.rs"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = files.stdout.split()
    left_out = test_files(files)
    counted = [name for name in files if not NOT_PRODUCTION.search(name) and not name.startswith(left_out)]
    return {name: code_lines((ROOT / name).read_text()) for name in counted}


def functions(lines: list[str]) -> list[tuple[int, str]]:
    """The code lines of each function, and its name."""
    found = []
    for at, line in enumerate(lines):
        head = FUNCTION.match(line)
        if head and not line.endswith((";", "}")):
            ends = (n for n in range(at + 1, len(lines)) if re.match(rf"{head[1]}(\}}|\).*;$)", lines[n]))
            found.append((next(ends, at) - at + 1, head[2]))
    return found


def main() -> None:
    files = production()
    crates: Counter[str] = Counter()
    for name, lines in files.items():
        crates[name.split("/")[0]] += len(lines)
    total = sum(crates.values())
    for crate, lines in crates.most_common():
        print(f"{lines:7,}  {crate}")
    print(f"{total:7,}  code lines; the limit is {LIMIT:,}")
    longest, function, place = max((*one, name) for name, lines in files.items() for one in functions(lines))
    print(f"{longest:7,}  code lines of {function} in {place}, the longest; the limit is {FUNCTION_LINES}")
    words = len((ROOT / "README.md").read_text().split())
    print(f"{words:7,}  words in README.md; the limit is {README_WORDS}")
    if total > LIMIT:
        sys.exit(f"error: {total - LIMIT:,} code lines above the limit: remove as many elsewhere")
    if longest > FUNCTION_LINES:
        sys.exit(f"error: {function} is too long: what are its parts?")
    if words > README_WORDS:
        sys.exit("error: README.md is too long: which of it belongs in docs?")


if __name__ == "__main__":
    main()
