#!/usr/bin/env python3
"""Turns the JSON lines of a full-size run into the tables of its README.

    python summary.py benchmarks/runs/DATE-full-size-cpu
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def lines(path: Path) -> list[dict]:
    """The lines of a file; empty if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


def detection(ours: dict[tuple[str, int], dict], peers: dict[int, dict]) -> None:
    """Latency and memory, a row for each number of classes and precision, each beside the peer of the same run."""
    print("| classes | ocelli | ocelli s (backbone + classes) | transformers s (backbone + classes) | ratio | "
          "peak MiB ocelli | peak MiB transformers | n |")
    print("|---|---|---|---|---|---|---|---|")
    for classes in sorted(peers):
        other = peers[classes]
        theirs, their_backbone = (other[key]["p50_ms"] / 1000 for key in ("total", "backbone"))
        for precision in ("fp32", "int8"):
            mine = ours.get((precision, classes))
            if mine is None:
                continue
            total, backbone = (mine[key]["p50"] / 1000 for key in ("total_ms", "backbone_ms"))
            print(f"| {classes} | {precision} "
                  f"| {total:.1f} ({backbone:.1f} + {mine['decode_ms']['p50'] / 1000:.1f}) "
                  f"| {theirs:.1f} ({their_backbone:.1f} + {other['encoder_decoder']['p50_ms'] / 1000:.1f}) "
                  f"| {total / theirs:.2f} | {mine['peak_memory_mib']:.0f} "
                  f"| {other['peak_memory_gb'] * 1e9 / 2**20:.0f} | {mine['total_ms']['n']} |")


def options(measured: list[dict]) -> None:
    """The effect of the engine options on the backbone."""
    print("\n| backbone | options | s | load s | peak MiB | n |\n|---|---|---|---|---|---|")
    for line in measured:
        precision = Path(line["graph"]).parent.name.removeprefix("graphs-")
        print(f"| {precision} | {line['options']} | {line['run_ms']['p50'] / 1000:.1f} | {line['load_ms'] / 1000:.1f} "
              f"| {line['peak_memory_mib']:.0f} | {line['run_ms']['n']} |")


def main() -> None:
    folder = Path(sys.argv[1])
    # Older runs have no precision field.
    ours = {(line.get("precision", "fp32"), line["classes"]): line for line in lines(folder / "ocelli.jsonl")}
    peers = {line["classes"]: line for line in lines(folder / "transformers.jsonl")}
    first = next(iter(ours.values()))
    machine, peer = first["machine"], next(iter(peers.values()))["machine"]
    print(f"# Full size on the CPU, {folder.name[:10]}\n")
    print(f"840 M random weights, 1008 px, 2 threads; {machine['cpu']}, {machine['cpus']} CPUs, "
          f"{machine['memory_mib'] / 1024:.0f} GiB; commit {machine['commit']}; {first['engine']}; peer, f32: "
          + ", ".join(f"{k} {v}" for k, v in peer.items() if v) + "\n")
    detection(ours, peers)
    print("\n| export | seconds | peak MiB, the mapped checkpoint's 3206 included |\n|---|---|---|")
    for line in lines(folder / "export.jsonl"):
        print(f"| {line['command']} | {line['seconds']} | {line['peak_memory_mib']:.0f} |")
    if measured := lines(folder / "engine.jsonl"):
        options(measured)


if __name__ == "__main__":
    main()
