"""Compares the detections of test.c with those of `ocelli detect --json`: parity.py OF_C.txt OF_PROGRAM.json"""

import json
import sys
from math import floor


def main() -> None:
    lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
    expected = json.load(open(sys.argv[2], encoding="utf-8"))["images"][0]["detections"]
    rows = [line.split("\t") for line in lines if not line.startswith("{")]
    [of_c] = [json.loads(line) for line in lines if line.startswith("{")]
    assert expected, "the program found nothing"
    assert of_c["detections"] == expected, "the JSON of the library is not that of the program"
    assert len(rows) == len(expected), (len(rows), len(expected))
    for row, detection in zip(rows, expected):
        class_id, label, *numbers, counts = row
        score, *edges = map(float, numbers)
        assert (int(class_id), label) == (detection["class_id"], detection["label"]), (row, detection)
        assert counts == detection["mask"]["counts"], label
        # The program rounds a half up.
        assert floor(score * 1e5 + 0.5) / 1e5 == detection["score"], (score, detection)
        assert [floor(edge * 1e2 + 0.5) / 1e2 for edge in edges] == detection["box"], (edges, detection)
    print(f"{len(rows)} detections are those of the program")


main()
