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
    screened = f", --screen, {line['screen_pass']} pass" if line.get("screen_pass") else ""
    return f"{name}, {stored if stored != 'fp32' else computed}{screened}"


def peer_of(line: dict) -> str:
    """The peer and its number format; older runs have neither."""
    return f"transformers, {line.get('dtype', 'float32')}{', torch.compile' if line.get('compiled') else ''}"


def detection(ours: dict[tuple[str, int], dict], peers: dict[tuple[str, int], dict]) -> None:
    """Latency and memory, a row for each number of classes, engine and format, beside the peer of the same run."""
    print("| classes | engine | seconds (backbone + classes) | fastest to slowest | of transformers' f32 | of its bf16 "
          "| peak MiB | of its f32 | n |")
    print("|---|---|---|---|---|---|---|---|---|")

    def row(classes: int, name: str, parts: tuple[dict, dict, dict], mib: float) -> None:
        # Peers' keys end in the unit.
        value = lambda part, key: (part[key] if key in part else part.get(f"{key}_ms", float("nan"))) / 1000  # noqa: E731
        whole, backbone, rest = (value(part, "p50") for part in parts)
        spread = f"{value(parts[0], 'min'):.1f} to {value(parts[0], 'p99'):.1f}"
        compared = [peers.get((f"transformers, {dtype}", classes)) for dtype in ("float32", "bfloat16")]
        shares = ["" if peer is None else f"{1000 * whole / peer['total']['p50_ms']:.2f}" for peer in compared]
        memory = "" if compared[0] is None else f"{mib / (compared[0]['peak_memory_gb'] * 1e9 / 2**20):.2f}"
        print(f"| {classes} | {name} | {whole:.1f} ({backbone:.1f} + {rest:.1f}) | {spread} | {shares[0]} | {shares[1]} "
              f"| {mib:.0f} | {memory} | {parts[0]['n']} |")

    for classes in sorted({classes for _, classes in peers}):
        for (name, count), peer in peers.items():
            if count == classes:
                parts = tuple(peer[key] for key in ("total", "backbone", "encoder_decoder"))
                row(classes, name, parts, peer["peak_memory_gb"] * 1e9 / 2**20)
        for (name, count), mine in ours.items():
            if count == classes:
                parts = tuple(mine[key] for key in ("total_ms", "backbone_ms", "decode_ms"))
                row(classes, name, parts, mine["peak_memory_mib"])


def backbones(ours: dict[tuple[str, int], dict], measured: list[dict]) -> None:
    """torch.onnx's graph of the backbone beside ours, of the run with the most measurements."""
    print("\n| backbone | engine | s | fastest to slowest | load s | peak MiB | n |\n|---|---|---|---|---|---|---|")
    for line in measured:
        if "run" in line:
            run = line["run"]
            print(f"| torch.onnx | {line['engine']}, {line['precision']} | {run['p50_ms'] / 1000:.1f} "
                  f"| {run['min_ms'] / 1000:.1f} to {run['p99_ms'] / 1000:.1f} | {line['load_s']:.1f} "
                  f"| {line['peak_memory_gb'] * 1e9 / 2**20:.0f} | {run['n']} |")
    fullest: dict[str, dict] = {}
    for (name, _), line in ours.items():
        if "screen" not in name and line["backbone_ms"]["n"] > fullest.get(name, {"backbone_ms": {"n": 0}})["backbone_ms"]["n"]:
            fullest[name] = line
    for name, line in fullest.items():
        run = line["backbone_ms"]
        print(f"| ours | {name} | {run['p50'] / 1000:.1f} | {run['min'] / 1000:.1f} to {run['p99'] / 1000:.1f} "
              f"| | | {run['n']} |")


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
    peers = {(peer_of(line), line["classes"]): line for line in lines(folder / "transformers.jsonl")}
    first = next(iter(ours.values()))
    machine, peer = first["machine"], next(iter(peers.values()))["machine"]
    print(f"# Full size on the CPU, {folder.name[:10]}\n")
    print(f"840 M random weights, 1008 px, 2 threads; {machine['cpu']}, {machine['cpus']} CPUs, "
          f"{machine['memory_mib'] / 1024:.0f} GiB; commit {machine['commit']}; peer: "
          + ", ".join(f"{k} {v}" for k, v in peer.items() if v) + "\n")
    detection(ours, peers)
    if exported := lines(folder / "torch_onnx.jsonl"):
        backbones(ours, exported)
    print("\n| export | seconds | peak MiB, the mapped checkpoint's 3206 included |\n|---|---|---|")
    for line in lines(folder / "export.jsonl"):
        print(f"| {line['command']} | {line['seconds']} | {line['peak_memory_mib']:.0f} |")
    if measured := lines(folder / "engine.jsonl"):
        options(measured)


if __name__ == "__main__":
    main()
