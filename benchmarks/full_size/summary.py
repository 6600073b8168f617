#!/usr/bin/env python3
"""Turns the JSON lines of a full-size run into the table that its README shows.

    python summary.py benchmarks/runs/DATE-full-size-cpu
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def lines(path: Path) -> list[dict]:
    """The file's lines; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def main() -> None:
    folder = Path(sys.argv[1])
    ours = {line["classes"]: line for line in lines(folder / "ocelli.jsonl")}
    peers = {line["classes"]: line for line in lines(folder / "transformers.jsonl")}
    machine = next(iter(ours.values()))["machine"]
    peer = next(iter(peers.values()))["machine"]
    print(f"# Full size on the CPU, {folder.name[:10]}\n")
    print(f"840 M random weights, 1008 px, f32, 2 threads; {machine['cpu']}, {machine['cpus']} CPUs, "
          f"{machine['memory_mib'] / 1024:.0f} GiB; commit {machine['commit']}; "
          f"{next(iter(ours.values()))['engine']}; peer: " + ", ".join(f"{k} {v}" for k, v in peer.items() if v) + "\n")
    print("| classes | ocelli s (backbone + classes) | transformers s (backbone + classes) | ratio | "
          "peak MiB ocelli | peak MiB transformers | n |")
    print("|---|---|---|---|---|---|---|")
    for classes in sorted(ours.keys() & peers.keys()):
        mine, other = ours[classes], peers[classes]
        total, backbone = (mine[key]["p50"] / 1000 for key in ("total_ms", "backbone_ms"))
        theirs, their_backbone = (other[key]["p50_ms"] / 1000 for key in ("total", "backbone"))
        print(f"| {classes} | {total:.1f} ({backbone:.1f} + {mine['decode_ms']['p50'] / 1000:.1f}) "
              f"| {theirs:.1f} ({their_backbone:.1f} + {other['encoder_decoder']['p50_ms'] / 1000:.1f}) "
              f"| {total / theirs:.2f} | {mine['peak_memory_mib']:.0f} "
              f"| {other['peak_memory_gb'] * 1e9 / 2**20:.0f} | {mine['total_ms']['n']} |")
    print("\n| export | seconds | peak MiB, the mapped checkpoint's 3206 included |\n|---|---|---|")
    for line in lines(folder / "export.jsonl"):
        print(f"| {line['command']} | {line['seconds']} | {line['peak_memory_mib']:.0f} |")


if __name__ == "__main__":
    main()
