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


def engine_of(line: dict) -> str:
    """The engine and the number format of a line: `OpenVINO, bf16`."""
    name = line["engine"].split(",")[0].split(" 1.")[0].split(" 20")[0].split(" 0.")[0]
    computed = "bf16" if line["engine"].endswith(", bf16") else "fp32"
    stored = line.get("precision", "fp32")
    return f"{name}, {stored if stored != 'fp32' else computed}"


def detection(ours: dict[tuple[str, int], dict], peers: dict[tuple[str, int], dict]) -> None:
    """Latency and memory, a row for each number of classes, engine and format, beside the peer of the same run."""
    print("| classes | engine | seconds (backbone + classes) | of transformers' f32 | of its bf16 | peak MiB | n |")
    print("|---|---|---|---|---|---|---|")

    def row(classes: int, name: str, seconds: tuple[float, float, float], mib: float, n: int) -> None:
        whole, backbone, rest = seconds
        shares = (peers.get((dtype, classes)) for dtype in ("float32", "bfloat16"))
        shares = ["" if peer is None else f"{1000 * whole / peer['total']['p50_ms']:.2f}" for peer in shares]
        print(f"| {classes} | {name} | {whole:.1f} ({backbone:.1f} + {rest:.1f}) | {shares[0]} | {shares[1]} | {mib:.0f} | {n} |")

    for classes in sorted({classes for _, classes in peers}):
        for (dtype, count), peer in peers.items():
            if count == classes:
                seconds = tuple(peer[key]["p50_ms"] / 1000 for key in ("total", "backbone", "encoder_decoder"))
                row(classes, f"transformers, {dtype}", seconds, peer["peak_memory_gb"] * 1e9 / 2**20, peer["total"]["n"])
        for (name, count), mine in ours.items():
            if count == classes:
                seconds = tuple(mine[key]["p50"] / 1000 for key in ("total_ms", "backbone_ms", "decode_ms"))
                row(classes, name, seconds, mine["peak_memory_mib"], mine["total_ms"]["n"])


def options(measured: list[dict]) -> None:
    """The effect of the engine options on the backbone."""
    print("\n| backbone | options | s | load s | peak MiB | n |\n|---|---|---|---|---|---|")
    for line in measured:
        precision = Path(line["graph"]).parent.name.removeprefix("graphs-")
        print(f"| {precision} | {line['options']} | {line['run_ms']['p50'] / 1000:.1f} | {line['load_ms'] / 1000:.1f} "
              f"| {line['peak_memory_mib']:.0f} | {line['run_ms']['n']} |")


def main() -> None:
    folder = Path(sys.argv[1])
    ours = {(engine_of(line), line["classes"]): line for line in lines(folder / "ocelli.jsonl")}
    # Older runs have no number format.
    peers = {(line.get("dtype", "float32"), line["classes"]): line for line in lines(folder / "transformers.jsonl")}
    first = next(iter(ours.values()))
    machine, peer = first["machine"], next(iter(peers.values()))["machine"]
    print(f"# Full size on the CPU, {folder.name[:10]}\n")
    print(f"840 M random weights, 1008 px, 2 threads; {machine['cpu']}, {machine['cpus']} CPUs, "
          f"{machine['memory_mib'] / 1024:.0f} GiB; commit {machine['commit']}; peer: "
          + ", ".join(f"{k} {v}" for k, v in peer.items() if v) + "\n")
    detection(ours, peers)
    print("\n| export | seconds | peak MiB, the mapped checkpoint's 3206 included |\n|---|---|---|")
    for line in lines(folder / "export.jsonl"):
        print(f"| {line['command']} | {line['seconds']} | {line['peak_memory_mib']:.0f} |")
    if measured := lines(folder / "engine.jsonl"):
        options(measured)


if __name__ == "__main__":
    main()
