"""Throughput of `ocelli serve` at 8 clients, beside the engine's own rate in the same run.

usage: load.py OCELLI FOLDER [SECONDS]: FOLDER has pictures; every client sends its own, so that no features are reused.
Prints one line of JSON. The clients run on the same machine as the engine.
"""

import http.client
import json
import pathlib
import subprocess
import sys
import threading
import time

CLIENTS, CLASSES = 8, ["cake", "house", "wine glass", "tv"]
program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 20.0
pictures = sorted(folder.glob("*.png"))[:48]


def engine_rate():
    """Pictures a second of the detector alone: its own times, without reading and decoding files."""
    command = [program, "detect", "--quiet", "--engine", "embedded", "--json", "-", "--image", *map(str, pictures), "--classes", *CLASSES]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    times = [image["timing_ms"]["total"] for image in report["images"]][2:]
    return 1000 * len(times) / sum(times)


def body(picture):
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="classes"\r\n\r\n' + ",".join(CLASSES).encode(),
        b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + picture.read_bytes(),
    ]
    return b"\r\n".join(parts) + b"\r\n--b--\r\n"


def serve():
    server = subprocess.Popen(
        [program, "serve", "--quiet", "--engine", "embedded", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    address = server.stdout.readline().strip().removeprefix("http://").rstrip("/")
    latencies, end = [], time.monotonic() + seconds

    def client(number):
        connection = http.client.HTTPConnection(address)
        bodies = [body(picture) for picture in pictures[number::CLIENTS]]
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

    start = time.monotonic()
    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    took = time.monotonic() - start
    server.terminate()
    server.wait()
    latencies.sort()
    return len(latencies) / took, latencies


before = engine_rate()
rate, latencies = serve()
after = engine_rate()
engine = (before + after) / 2
share = lambda part: round(1000 * latencies[min(len(latencies) - 1, int(part * len(latencies)))], 1)
print(
    json.dumps(
        {
            "clients": CLIENTS,
            "n": len(latencies),
            "engine_per_s": [round(before, 2), round(after, 2)],
            "served_per_s": round(rate, 2),
            "ratio": round(rate / engine, 3),
            "p50_ms": share(0.5),
            "p99_ms": share(0.99),
        }
    )
)
