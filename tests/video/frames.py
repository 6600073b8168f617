"""Reads videos as Python's `ocelli.Video` does: frames.py VIDEO RAW prints a JSON line for each frame and writes its pixels to RAW."""

import json
import sys

import ocelli
from ocelli import _decode, _ocelli


def main() -> None:
    assert _ocelli.why_no_video_library() is None, _ocelli.why_no_video_library()
    with open(sys.argv[2], "wb") as raw:
        try:
            reader = _decode.open_input(sys.argv[1], None, [], None)
            while (found := reader.read()) is not None:
                _, time_s, pixels = found
                height, width, _ = pixels.shape
                raw.write(pixels.tobytes())
                print(json.dumps({"time_s": time_s, "width": width, "height": height}))
        except ocelli.Error as error:
            sys.exit(f"error: {error}")


main()
