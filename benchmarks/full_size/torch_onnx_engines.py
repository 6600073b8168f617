#!/usr/bin/env python3
"""Measures the backbone that `torch_onnx.py` exported, in ONNX Runtime or OpenVINO on a CPU.

    python torch_onnx_engines.py --graph DIR/backbone/backbone.onnx --engine openvino --precision int8

`int8` is nncf's `compress_weights` to symmetric 8 bits for each output channel, with activations quantised while it runs in
groups of 64, as Ocelli's int8 is in OpenVINO. It is compressed in a process of its own, for the peak memory of the other.
Needs the packages `onnxruntime`, `openvino` and `nncf`. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import numpy as np

from measurement import machine, peak_memory_gb, summary

SIDE = 1008


def compress(graph: Path, output: Path) -> None:
    """Writes OpenVINO's form of a graph with weights in 8 bits."""
    import nncf
    import openvino

    model = nncf.compress_weights(openvino.Core().read_model(graph), mode=nncf.CompressWeightsMode.INT8_SYM)
    openvino.save_model(model, output, compress_to_fp16=False)


def in_openvino(graph: Path, precision: str, threads: int) -> tuple[str, Callable[[np.ndarray], object]]:
    """The engine's name, and a call that runs the graph."""
    import openvino

    if precision == "int8":
        compressed = graph.with_name("backbone-int8.xml")
        if not compressed.exists():
            subprocess.run([sys.executable, __file__, "--graph", str(graph), "--compress", str(compressed)],
                           stdout=sys.stderr, check=True)
        graph = compressed
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32"}
    if precision == "int8":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 64
    compiled = openvino.Core().compile_model(graph, "CPU", settings)
    request, name = compiled.create_infer_request(), compiled.inputs[0].any_name
    return f"OpenVINO {openvino.__version__.split('-')[0]}", lambda pixels: request.infer({name: pixels})


def in_onnxruntime(graph: Path, threads: int) -> tuple[str, Callable[[np.ndarray], object]]:
    """As [in_openvino]."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return f"ONNX Runtime {onnxruntime.__version__}", lambda pixels: session.run(None, {name: pixels})


def measure(arguments: argparse.Namespace) -> dict:
    """One line of figures."""
    started = time.perf_counter()
    if arguments.engine == "openvino":
        engine, run = in_openvino(arguments.graph, arguments.precision, arguments.threads)
    else:
        engine, run = in_onnxruntime(arguments.graph, arguments.threads)
    load_s = time.perf_counter() - started
    pixels = np.random.default_rng(0).random((1, 3, SIDE, SIDE), dtype=np.float32) * 2 - 1
    seconds = []
    for turn in range(arguments.warm_up + arguments.runs):
        started = time.perf_counter()
        run(pixels)
        if turn >= arguments.warm_up:
            seconds.append(time.perf_counter() - started)
    return {"peer": "torch.onnx", "part": "backbone", "engine": engine, "precision": arguments.precision,
            "imgsz": SIDE, "run": summary(seconds), "load_s": round(load_s, 2), "peak_memory_gb": peak_memory_gb(),
            "machine": machine(arguments.threads)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", type=Path, required=True, help="backbone.onnx of torch_onnx.py")
    parser.add_argument("--engine", choices=("onnxruntime", "openvino"), default="openvino", help="(default openvino)")
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="fp32",
                        help="number format; ONNX Runtime has fp32 only (default fp32)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--runs", type=int, default=3, help="measured runs (default 3)")
    parser.add_argument("--warm-up", type=int, default=1, help="warm-up runs (default 1)")
    parser.add_argument("--compress", type=Path, metavar="FILE", help="only write the graph with weights in 8 bits")
    arguments = parser.parse_args()
    if arguments.compress:
        compress(arguments.graph, arguments.compress)
        return
    if arguments.engine == "onnxruntime" and arguments.precision != "fp32":
        parser.error("--engine onnxruntime runs the graph in fp32 only")
    print(json.dumps(measure(arguments)), flush=True)


if __name__ == "__main__":
    main()
