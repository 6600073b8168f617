#!/usr/bin/env python3
"""Breaks the code on purpose and expects the tests to notice.

    tests/mutations/run.py behaviour     faults that do not hide each other, all in one build
    tests/mutations/run.py exporter      faults of the exporter, one build each (about a minute each)
    tests/mutations/run.py masklets      faults of masklet sessions, one build each (about ten seconds each)
    tests/mutations/run.py check         whether the code of each fault, and its test, is still there (part of `make lint`)
    tests/mutations/run.py training      faults of distillation (half a minute each), after training/check.sh

Works on a copy in target/mutations; a fault whose tests all pass is printed, and the exit status is 1. A test that hangs
for two minutes has noticed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import faults

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
COPY = ROOT / "target" / "mutations"
# As the other checks build it, so that nothing else is built again.
WORKSPACE = ["--workspace", "--exclude", "ocelli-python", "--no-default-features", "--features",
             "fonts hub serve"]
PATIENCE = 120


def copy_tree():
    """The files of the project without faults; unchanged ones keep their time, so that cargo rebuilds the others only."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    names = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    COPY.mkdir(parents=True, exist_ok=True)
    for path in COPY.rglob("*"):
        if path.is_file() and path.relative_to(COPY).as_posix() not in names:
            path.unlink()
    for name in names:
        write(COPY / name, (ROOT / name).read_bytes(), (ROOT / name).stat().st_mode)


def write(path, data, mode=None):
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if mode is not None:
        path.chmod(mode)


def inject(fault):
    path = COPY / fault.file
    text = path.read_text()
    if text.count(fault.old) < 1:
        sys.exit(f"{fault.file}: the code of a fault is gone: {fault.old!r}; adapt tests/mutations/faults.py")
    path.write_text(text.replace(fault.old, fault.new, 1))


def build(packages):
    """The test programs, each with the folder of its package."""
    chosen = [word for package in packages for word in ("-p", package)]
    command = ["cargo", "test", *(chosen or WORKSPACE), "--lib", "--bins", "--test", "all", "--no-run",
               "--message-format=json-render-diagnostics"]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(BUILT), CARGO_TERM_QUIET="true")
    done = subprocess.run(command, cwd=COPY, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("a fault does not compile")
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        (message["executable"], pathlib.Path(message["manifest_path"]).parent)
        for message in messages
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]
    ]


def listed(program, folder):
    done = subprocess.run([program, "--list", "--format=terse"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return [line.removesuffix(": test") for line in done.stdout.splitlines() if line.endswith(": test")]


def notices(program, folder, test):
    try:
        done = subprocess.run([program, "--exact", test], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "hangs"
    return "fails" if done.returncode != 0 else None


def judge(fault_list, programs):
    """The number of faults that no test noticed."""
    tests = [(program, folder, test) for program, folder in programs for test in listed(program, folder)]
    missed = 0
    for fault in fault_list:
        wanted = [entry for entry in tests if fault.test in entry[2]]
        if not wanted:
            sys.exit(f"no test is called {fault.test}; adapt tests/mutations/faults.py")
        seen = [(test, result) for *program, test in wanted if (result := notices(*program, test))]
        missed += not seen
        verdict = ", ".join(f"{test} {result}" for test, result in seen) or f"NOT NOTICED by {fault.test}"
        print(f"{fault.name}: {verdict}", flush=True)
    return missed


def judge_training():
    """The number of faults of distillation that no test noticed, one after the other."""
    missed = 0
    for fault in faults.TRAINING:
        copy_tree()
        inject(fault)
        command = [BUILT / "training/venv/bin/python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests", "-k", fault.test]
        done = subprocess.run(command, cwd=COPY / "training", env=dict(os.environ, PYTHONPATH=str(COPY / "training")),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        # 1 is a failed test; other statuses are no tests, or none that could be collected.
        if done.returncode not in (0, 1):
            sys.exit(f"{fault.name}: {done.stdout}")
        missed += done.returncode == 0
        print(f"{fault.name}: {'fails' if done.returncode else 'NOT NOTICED by'} {fault.test}", flush=True)
    return missed


def check():
    """Lines about faults whose code or test is gone."""
    tests = "".join(path.read_text() for path in ROOT.rglob("*.rs") if "target" not in path.relative_to(ROOT).parts)
    for fault in [*faults.BEHAVIOUR, *faults.EXPORTER, *faults.MASKLETS, *faults.TRAINING]:
        path = ROOT / fault.file
        if not path.is_file() or fault.old not in path.read_text():
            yield f"{fault.name}: the code of the fault is gone from {fault.file}"
        if fault not in faults.TRAINING and fault.test.rsplit("::")[-1] not in tests:
            yield f"{fault.name}: there is no test {fault.test}"


def main():
    if sys.argv[1:] == ["check"]:
        gone = list(check())
        print("".join(f"{line}; adapt tests/mutations/faults.py\n" for line in gone), end="")
        sys.exit(1 if gone else 0)
    if sys.argv[1:] == ["training"]:
        missed = judge_training()
        print(f"{len(faults.TRAINING) - missed} of {len(faults.TRAINING)} faults were noticed")
        sys.exit(1 if missed else 0)
    groups = {"behaviour": [faults.BEHAVIOUR], "exporter": [[fault] for fault in faults.EXPORTER],
              "masklets": [[fault] for fault in faults.MASKLETS]}
    if len(sys.argv) != 2 or sys.argv[1] not in groups:
        sys.exit(__doc__)
    missed = total = 0
    try:
        for group in groups[sys.argv[1]]:
            copy_tree()
            for fault in group:
                inject(fault)
            packages = {"behaviour": [], "exporter": ["ocelli-export", "ocelli-tests"],
                        "masklets": ["ocelli-tracking"]}[sys.argv[1]]
            missed += judge(group, build(packages))
            total += len(group)
    finally:
        # Cargo would take the copy's builds for the project's while the files they came from are there and as old.
        shutil.rmtree(COPY, ignore_errors=True)
    print(f"{total - missed} of {total} faults were noticed")
    sys.exit(1 if missed or not total else 0)


if __name__ == "__main__":
    main()
