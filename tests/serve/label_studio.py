"""`ocelli serve` as the backend of a real Label Studio: a project with images, predictions fetched, shown and accepted; smart
tools and a video with a model that has a tracker.

usage: python label_studio.py OCELLI TRACKER VIDEO IMAGE...: with the Python of an environment that has label-studio.
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

program, tracker, video, *images = [pathlib.Path(name).resolve() for name in sys.argv[1:]]
TOKEN = "0123456789abcdef0123456789abcdef01234567"
CONFIG = """<View><Image name="image" value="$image"/>
<RectangleLabels name="box" toName="image"><Label value="House"/><Label value="Food" predicted_values="hot dog, cake"/></RectangleLabels>
<PolygonLabels name="outline" toName="image"><Label value="House"/></PolygonLabels>
<BrushLabels name="mask" toName="image"><Label value="House"/></BrushLabels></View>"""
SMART = CONFIG.replace("</View>", """<KeyPointLabels name="point" toName="image"><Label value="House" smart="true"/></KeyPointLabels></View>""")
CLIP = """<View><Video name="clip" value="$video"/><VideoRectangle name="box" toName="clip" smart="true"/>
<Labels name="label" toName="clip"><Label value="Dog"/></Labels></View>"""


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
    "USE_DEFAULT_BANNED_SUBNETS": "false",
    "SSRF_PROTECTION_ENABLED": "false",
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


def serve(server_token, log, *options):
    """Starts a server with this token of Label Studio."""
    command = [program, "serve", "--engine", "embedded", "--listen", "127.0.0.1:0", "--label-studio", studio, *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | {"LABEL_STUDIO_API_KEY": server_token})
    return server, server.stdout.readline().strip() + "label-studio"


def project_with(config, files, kind):
    """A project with these files as tasks."""
    project = call("POST", "/api/projects", {"title": "check", "label_config": config})["id"]
    parts = []
    for file in files:
        head = f'--b\r\nContent-Disposition: form-data; name="{file.name}"; filename="{file.name}"\r\nContent-Type: {kind}\r\n\r\n'
        parts.append(head.encode() + file.read_bytes() + b"\r\n")
    call("POST", f"/api/projects/{project}/import", b"".join(parts) + b"--b--\r\n", "multipart/form-data; boundary=b")
    return project


def connect(backend, project, is_interactive):
    connected = call("POST", "/api/ml", {"url": backend, "project": project, "title": "Ocelli", "is_interactive": is_interactive})
    assert connected["state"] == "CO", connected
    return connected["id"]


def check_smart_tools(log):
    """What a person draws goes through Label Studio to the server, and the answer comes back."""
    server, backend = serve(TOKEN, log, "--model", str(tracker))
    try:
        for config, file, kind, drawn in (
            (SMART, images[0], "image/png", {"type": "keypointlabels", "from_name": "point", "to_name": "image", "is_positive": True,
             "original_width": 320, "original_height": 240, "image_rotation": 0, "id": "a",
             "value": {"x": 40, "y": 40, "width": 0.5, "keypointlabels": ["House"]}}),
            (CLIP, video, "video/mp4", {"type": "videorectangle", "from_name": "box", "to_name": "clip", "id": "a",
             "value": {"framesCount": 10, "duration": 0.4, "labels": ["Dog"],
                       "sequence": [{"frame": 3, "enabled": True, "rotation": 0, "x": 10, "y": 10, "width": 60, "height": 60, "time": 0.08}]}}),
        ):
            project = project_with(config, [file], kind)
            ml = connect(backend, project, True)
            [task] = call("GET", f"/api/tasks?project={project}&fields=all")["tasks"]
            answer = call("POST", f"/api/ml/{ml}/interactive-annotating", {"task": task["id"], "context": {"result": [drawn]}})
            regions = answer["data"]["result"]
            kinds = {region["type"] for region in regions}
            if kind == "image/png":
                assert kinds == {"brushlabels", "polygonlabels"}, kinds
                assert any(decode_rle(region["value"]["rle"]).any() for region in regions if region["type"] == "brushlabels")
            else:
                [region] = regions
                assert kinds == {"videorectangle"} and region["value"]["labels"] == ["Dog"], region
                assert region["value"]["sequence"][0]["frame"] == 3
        print("smart tools and a video: drawn, answered and shown")
    finally:
        server.terminate()
        assert server.wait() == 130


def check_with(server_token, log):
    """Serves with this token of Label Studio, and checks a project."""
    server, backend = serve(server_token, log)
    try:
        project = project_with(CONFIG, images, "image/png")
        connect(backend, project, False)
        everything = {"selectedItems": {"all": True, "excluded": []}}
        call("POST", f"/api/dm/actions?id=retrieve_tasks_predictions&project={project}", everything)
        ours = lambda: [one for one in call("GET", f"/api/predictions?project={project}") if one["model_version"].startswith("ocelli")]
        predictions = wait_until("predictions", lambda: (all_ := ours()) and len(all_) >= len(images) and all_)

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
        assert len(exported) == len(images)
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
        check_smart_tools(log)
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
