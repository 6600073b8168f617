"""`ocelli serve` as the backend of a real Label Studio: a project with pictures, predictions fetched, shown and accepted.

usage: python label_studio.py OCELLI PICTURE...: with the Python of an environment that has label-studio.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import numpy
from label_studio_sdk.converter.brush import decode_rle

program, pictures = pathlib.Path(sys.argv[1]).resolve(), [pathlib.Path(name).resolve() for name in sys.argv[2:]]
TOKEN = "0123456789abcdef0123456789abcdef01234567"
CONFIG = """<View><Image name="image" value="$image"/>
<RectangleLabels name="box" toName="image"><Label value="House"/><Label value="Food" predicted_values="hot dog, cake"/></RectangleLabels>
<PolygonLabels name="outline" toName="image"><Label value="House"/></PolygonLabels>
<BrushLabels name="mask" toName="image"><Label value="House"/></BrushLabels></View>"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


folder = tempfile.TemporaryDirectory()
port = free_port()
studio = f"http://127.0.0.1:{port}"
environment = os.environ | {
    "LABEL_STUDIO_BASE_DATA_DIR": folder.name,
    "LABEL_STUDIO_USERNAME": "someone@example.org",
    "LABEL_STUDIO_PASSWORD": "a long password",
    "LABEL_STUDIO_USER_TOKEN": TOKEN,
    "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
    "LABEL_STUDIO_HOST": studio,
    # Label Studio refuses backends on its own machine otherwise.
    "ML_BLOCK_LOCAL_IP": "false",
    "COLLECT_ANALYTICS": "false",
    "LATEST_VERSION_CHECK": "false",
    "SENTRY_DSN": "",
    "FRONTEND_SENTRY_DSN": "",
}


def call(method, path, body=None, kind="application/json", authorization=f"Token {TOKEN}"):
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(studio + path, data, {"Authorization": authorization, "Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method} {path}: {error.code} {error.read()[:2000]}") from None
    return json.loads(text) if text else None


def wait_until(what, check, seconds=600):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if found := check():
                return found
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"no {what} after {seconds} s")


def check_with(server_token, log):
    """Serves with this token of Label Studio, and checks a project."""
    server = subprocess.Popen(
        [program, "serve", "--engine", "embedded", "--listen", "127.0.0.1:0", "--label-studio", studio],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env=os.environ | {"LABEL_STUDIO_API_KEY": server_token},
    )
    try:
        backend = server.stdout.readline().strip() + "label-studio"
        project = call("POST", "/api/projects", {"title": "check", "label_config": CONFIG})["id"]
        parts = []
        for picture in pictures:
            head = f'--b\r\nContent-Disposition: form-data; name="{picture.name}"; filename="{picture.name}"\r\nContent-Type: image/png\r\n\r\n'
            parts.append(head.encode() + picture.read_bytes() + b"\r\n")
        call("POST", f"/api/projects/{project}/import", b"".join(parts) + b"--b--\r\n", "multipart/form-data; boundary=b")
        connected = call("POST", "/api/ml", {"url": backend, "project": project, "title": "Ocelli", "is_interactive": False})
        assert connected["state"] == "CO", connected
        everything = {"selectedItems": {"all": True, "excluded": []}}
        call("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", everything)
        ours = lambda: [one for one in call("GET", f"/api/predictions?project={project}") if one["model_version"].startswith("ocelli")]
        predictions = wait_until("predictions", lambda: (all_ := ours()) and len(all_) >= len(pictures) and all_)

        # Shown: as Label Studio gives a task to its page.
        kinds, brushes = set(), 0
        for task in call("GET", f"/api/tasks?project={project}&fields=all")["tasks"]:
            shown = call("GET", f"/api/tasks/{task['id']}")["predictions"]
            assert len(shown) == 1, shown
            for region in shown[0]["result"]:
                kinds.add(region["type"])
                if region["type"] == "brushlabels":
                    width, height = region["original_width"], region["original_height"]
                    pixels = decode_rle(region["value"]["rle"]).reshape(height, width, 4)
                    assert pixels[..., 3].any() and numpy.array_equal(pixels[..., 0], pixels[..., 3])
                    brushes += 1
        assert kinds == {"rectanglelabels", "polygonlabels", "brushlabels"}, kinds

        # Accepted: the predictions become annotations, and are exported.
        call("POST", f"/api/dm/actions?id=predictions_to_annotations&project={project}", everything)
        exported = call("GET", f"/api/projects/{project}/export?exportType=JSON")
        by_task = {one["task"]: one["result"] for one in predictions}
        assert len(exported) == len(pictures)
        for task in exported:
            accepted = task["annotations"][0]["result"]
            assert [one["value"] for one in accepted] == [one["value"] for one in by_task[task["id"]]]
        regions = sum(len(result) for result in by_task.values())
        print(f"{len(predictions)} predictions, {regions} regions, {brushes} brushes: fetched, shown and accepted")
    finally:
        server.terminate()
        assert server.wait() == 130


with open(pathlib.Path(folder.name) / "log", "w") as log:
    command = [pathlib.Path(sys.executable).with_name("label-studio"), "start", "--no-browser", "--internal-host", "127.0.0.1", "--port", str(port)]
    running = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_until("Label Studio", lambda: running.poll() is None and urllib.request.urlopen(f"{studio}/health", timeout=5).status == 200)
        check_with(TOKEN, log)
        # A personal access token, which is exchanged for one that lives shortly.
        personal = call("POST", "/api/token/", {})["token"]
        check_with(personal, log)
    except BaseException:
        log.flush()
        print(pathlib.Path(log.name).read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        running.terminate()
        running.wait()
print("Label Studio works")
