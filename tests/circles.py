#!/usr/bin/env python3
"""Fails if files of production Rust need each other in a circle.

    python3 tests/circles.py

A file needs those that its paths lead to, `use` or not; a module and those inside it may need each other.
"""

import re
import sys
from pathlib import PurePath

import size

NOT_CODE = re.compile(r"""'\\?"'|r#".*?"#|"(?:[^"\\]|\\.)*"|\s//[^\n]*""", re.DOTALL)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([\w:{},*\s]+);", re.MULTILINE)
PATH = re.compile(r"(?<![\w:])[a-z_]\w*(?:::\w+)+")

Module = tuple[str, ...]  # The folder of the crate, and the module's path in it.


def paths(tree: str) -> list[tuple[list[str], str]]:
    """The paths of a `use`, and the names that they get."""
    group = re.search(r"[\w:]*\{[^{}]*\}", tree)
    if group:
        head, inner = group[0][:-1].split("{")
        flat = ", ".join(head + one.strip() for one in inner.split(",") if one.strip())
        return paths(tree[: group.start()] + flat + tree[group.end() :])
    found = []
    for one in tree.split(","):
        path, _, name = one.strip().removesuffix("::self").partition(" as ")
        found.append((path.split("::"), name or path.rsplit("::")[-1]))
    return found


def modules() -> dict[Module, tuple[str, str]]:
    """The file of each module, and its code without strings."""
    files = size.production()
    crates = [str(PurePath(name).parent) for name in files if name.endswith("src/lib.rs")]
    found = {}
    for name, lines in files.items():
        crate = max((one for one in crates if name.startswith(f"{one}/")), key=len, default=None)
        if crate:
            path = name.removeprefix(f"{crate}/").removesuffix(".rs").split("/")
            found[(crate, *(path if path != ["lib"] else ()))] = (name, NOT_CODE.sub("", "\n".join(lines)))
    return found


def needs(files: dict[Module, tuple[str, str]]) -> dict[Module, set[Module]]:
    """The modules that each needs."""
    uses = {module: [one for tree in USE.findall(code) for one in paths(tree)] for module, (_, code) in files.items()}
    named = {module: {name: path for path, name in found} for module, found in uses.items()}

    def place(at: Module, path: list[str], depth: int) -> Module | None:
        """The module that has what a path in `at` names, behind what only shows it."""
        first = path[0]
        if first in ("crate", "self"):
            at, path = at[:1] if first == "crate" else at, path[1:]
        elif first != "super" and (*at, first) not in files:
            return shown(at, path, depth)
        while path and (path[0] == "super" or (*at, path[0]) in files):
            at, path = at[:-1] if path[0] == "super" else (*at, path[0]), path[1:]
        return (shown(at, path, depth) if path and path[0] in named.get(at, ()) else at) if at in files else None

    def shown(at: Module, path: list[str], depth: int) -> Module | None:
        known = named[at].get(path[0])
        return place(at, known + path[1:], depth - 1) if known and depth and known[0] != path[0] else None

    needed = {}
    for module, (_, code) in files.items():
        every = [path for path, _ in uses[module]] + [path.split("::") for path in PATH.findall(USE.sub("", code))]
        found = {place(module, path, 9) for path in every} - {None}
        needed[module] = {one for one in found if one[: len(module)] != module[: len(one)]}
    return needed


def reach(needed: dict[Module, set[Module]], start: Module) -> set[Module]:
    seen, ends = set(), [start]
    while ends:
        new = needed[ends.pop()] - seen
        seen, ends = seen | new, [*ends, *new]
    return seen


def main() -> None:
    files = modules()
    needed = needs(files)
    reached = {module: reach(needed, module) for module in files}
    circles = {frozenset(one for one in reached[m] if m in reached[one]) for m in files if m in reached[m]}
    for circle in sorted(circles, key=len, reverse=True):
        print(f"{len(circle):3}  " + " ".join(sorted(files[module][0] for module in circle)))
    print(f"{len(circles)} circles among {len(files)} files")
    if circles:
        sys.exit("error: files that need each other: move what both need below both")


if __name__ == "__main__":
    main()
