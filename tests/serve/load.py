"""Throughput of `ocelli serve` at 8 clients, beside the engine's own rate in the same run.

usage: load.py OCELLI FOLDER [SECONDS]: FOLDER has images; every client sends its own, so that no features are reused.
Prints one line of JSON. The clients run on the same machine as the engine, so that the time of the processors counts as
well: `cpu_ms` is that of an image in the engine alone, in the server, and in the clients. It does not depend on what else the
machine does.
"""

import http.client
import json
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

CLIENTS, CLASSES = 8, ["cake", "house", "wine glass", "tv"]
program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
images = sorted(folder.glob("*.png"))[:48]


def engine_rate():
    """Images a second of the detector alone: its own times, without reading and decoding files."""
    start = ["detect", "--quiet", "--engine", "embedded", "--json", "-", "--classes", *CLASSES]

    def run(files):
        before = spent(resource.RUSAGE_CHILDREN)
        command = [program, *start, "--image", *map(str, files)]
        report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return report["images"], spent(resource.RUSAGE_CHILDREN) - before

    few, many = images[:8], images
    # Starting the program and loading the model are in both.
    (_, of_few), (images, of_many) = run(few), run(many)
    times = [image["timing_ms"]["total"] for image in images][2:]
    return 1000 * len(times) / sum(times), 1000 * (of_many - of_few) / (len(many) - len(few))


def spent(of):
    """Seconds of the processors."""
    used = resource.getrusage(of)
    return used.ru_utime + used.ru_stime


def spent_by(process):
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def body(image):
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="classes"\r\n\r\n' + ",".join(CLASSES).encode(),
        b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + image.read_bytes(),
    ]
    return b"\r\n".join(parts) + b"\r\n--b--\r\n"


def serve():
    server = subprocess.Popen(
        [program, "serve", "--quiet", "--engine", "embedded", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    address = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
    latencies, end = [], 0.0

    def client(number):
        connection = http.client.HTTPConnection(address)
        bodies = [body(image) for image in images[number::CLIENTS]]
        sent = 0
        while time.monotonic() < end:
            start = time.monotonic()
            kind = {"Content-Type": "multipart/form-data; boundary=b"}
            connection.request("POST", "/v1/detect", bodies[sent % len(bodies)], kind)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            latencies.append(time.monotonic() - start)
            sent += 1

    def all_clients(seconds):
        nonlocal end
        end = time.monotonic() + seconds
        clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()

    all_clients(1.0)
    latencies.clear()
    start, of_clients, of_server = time.monotonic(), spent(resource.RUSAGE_SELF), spent_by(server.pid)
    all_clients(seconds)
    took = time.monotonic() - start
    of_clients, of_server = spent(resource.RUSAGE_SELF) - of_clients, spent_by(server.pid) - of_server
    server.terminate()
    server.wait()
    latencies.sort()
    each = 1000 / len(latencies)
    return len(latencies) / took, latencies, of_server * each, of_clients * each


before, cpu_before = engine_rate()
rate, latencies, of_server, of_clients = serve()
after, cpu_after = engine_rate()
engine, cpu = (before + after) / 2, (cpu_before + cpu_after) / 2
share = lambda part: round(1000 * latencies[min(len(latencies) - 1, int(part * len(latencies)))], 1)
print(
    json.dumps(
        {
            "clients": CLIENTS,
            "n": len(latencies),
            "engine_per_s": [round(before, 2), round(after, 2)],
            "served_per_s": round(rate, 2),
            "ratio": round(rate / engine, 3),
            "cpu_ms": {"engine": round(cpu, 1), "server": round(of_server, 1), "clients": round(of_clients, 1)},
            "cpu_ratio": round(cpu / of_server, 3),
            "p50_ms": share(0.5),
            "p99_ms": share(0.99),
        }
    )
)
