"""Writes kernels.txt: the kernels that ONNX Runtime's CUDA provider registers for opset 20 and com.microsoft.

The provider itself is asked, without a GPU: small libraries stand in for the driver, for the CUDA calls of its
constructor and for TensorRT. Needs a C compiler and a Python with

    pip install onnxruntime-gpu==1.31.1 nvidia-cublas nvidia-cuda-runtime nvidia-curand nvidia-cufft nvidia-cudnn-cu13

    python make.py            # writes kernels.txt beside this script
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

OPSET = 20
HERE = pathlib.Path(__file__).parent
HEADER = """\
# Kernels of ONNX Runtime {version}'s CUDA provider for opset {opset} and com.microsoft, made by make.py. One a line: operator,
# types of its inputs, `...` if the last may repeat, `->`, types of its outputs, then the types of every letter.
"""
# Neither is there a driver nor TensorRT 10.
LIBRARIES = {
    "libnvinfer.so.10": "createInferBuilder_INTERNAL createInferRuntime_INTERNAL createInferRefitter_INTERNAL "
    "getInferLibVersion getPluginRegistry initLibNvInferPlugins",
    "libnvonnxparser.so.10": "createNvOnnxParser_INTERNAL createNvOnnxParserRefitter_INTERNAL getNvOnnxParserVersion",
}


def undefined(library):
    text = subprocess.run(["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[1].split("@")[0] for line in text.splitlines() if len(line.split()) == 2}


def compile_library(folder, name, code):
    source = folder / "code.c"
    source.write_text("#include <stdlib.h>\n#include <string.h>\n" + "\n".join(code))
    flags = ["-w", "-shared", "-fPIC", f"-Wl,-soname,{name}"]
    subprocess.run(["cc", *flags, "-o", folder / name, source], check=True)


def cuda_call(name):
    """A call that succeeds: new objects are zeros, properties are zeros, there is one device."""
    if name == "cudaGetDeviceCount":
        return f"int {name}(int*n){{*n=1;return 0;}}"
    if name == "cudaGetDevice":
        return f"int {name}(int*n){{*n=0;return 0;}}"
    if name == "cudaMemGetInfo":
        return f"int {name}(size_t*a,size_t*b){{*a=*b=1ul<<30;return 0;}}"
    if "GetDeviceProperties" in name:
        return f"int {name}(void*p){{memset(p,0,1000);return 0;}}"
    if re.search("Create|Malloc", name):
        return f"int {name}(void**p){{*p=calloc(1,4096);return 0;}}"
    return f"int {name}(void){{return 0;}}"


def ask_again(packages):
    """Runs this script with the libraries that stand in."""
    capi = packages / "onnxruntime" / "capi"
    needed = set().union(*(undefined(capi / f"libonnxruntime_providers_{name}.so") for name in ("cuda", "tensorrt")))
    calls = {name for name in needed if re.match(r"cuda[A-Z]|cublas|cudnn|curand", name)}
    calls -= {"cublasGetStatusString", "cudaGetErrorString", "cudaGetErrorName"}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        driver = {name for name in needed if re.match(r"cu[A-Z]", name)}
        compile_library(folder, "libcuda.so.1", [f"int {name}(void){{return 100;}}" for name in driver])
        compile_library(folder, "calls.so", [cuda_call(name) for name in sorted(calls)])
        for library, names in LIBRARIES.items():
            compile_library(folder, library, [f"void*{name}(void){{return 0;}}" for name in names.split()])
        folders = [folder, *packages.glob("nvidia/*/lib")]
        variables = {"LD_PRELOAD": str(folder / "calls.so"), "LD_LIBRARY_PATH": ":".join(map(str, folders))}
        subprocess.run([sys.executable, __file__, "asked"], check=True, env={**os.environ, **variables})


def short(type_name):
    return type_name.replace("tensor(", "").rstrip(")")


def line(kernel, schema):
    letters = {}
    for letter, types in kernel.type_constraints.items():
        letters[letter] = ",".join(sorted(map(short, types)))
    sides = [" ".join(short(value.typeStr) for value in side) for side in (schema.inputs, schema.outputs)]
    variadic = schema.inputs and str(schema.inputs[-1].option).endswith("Variadic")
    name = f"{kernel.domain}.{kernel.op_name}" if kernel.domain not in ("", "ai.onnx") else kernel.op_name
    types = " ".join(f"{letter}={types}" for letter, types in sorted(letters.items()))
    return f"{name} {sides[0]}{' ...' if variadic else ''} -> {sides[1]}{' ' if types else ''}{types}"


def write():
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    schemas = {}
    for schema in state.get_all_operator_schema():
        latest = {"": OPSET, "ai.onnx": OPSET, "com.microsoft": 1}.get(schema.domain)
        if latest is not None and schema.since_version <= latest:
            known = schemas.get((schema.domain, schema.name))
            if known is None or known.since_version < schema.since_version:
                schemas[schema.domain, schema.name] = schema
    lines = set()
    for kernel in state.get_all_opkernel_def():
        schema = schemas.get((kernel.domain, kernel.op_name))
        first, last = kernel.version_range
        version = 1 if kernel.domain == "com.microsoft" else OPSET
        if kernel.provider == "CUDAExecutionProvider" and schema is not None and first <= version <= last:
            lines.add(line(kernel, schema))
    header = HEADER.format(version=onnxruntime.__version__, opset=OPSET)
    (HERE / "kernels.txt").write_text(header + "\n".join(sorted(lines)) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["asked"]:
        write()
    else:
        import importlib.util

        ask_again(pathlib.Path(importlib.util.find_spec("onnxruntime").origin).parent.parent)
