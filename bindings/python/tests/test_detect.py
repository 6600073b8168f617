import concurrent.futures
import json
import pickle
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from conftest import PARK_CLASSES, Run

import ocelli


def test_the_result_is_that_of_the_program(masking: ocelli.Detector, scenes: Path, program: Run, tmp_path: Path) -> None:
    wanted = ["dog", "tree", "car", "pizza", "person", "clock"]
    ran = program(
        "demo-image", "--engine", "embedded", "--masks", "--image", scenes, "--classes", *wanted,
        "--json", tmp_path / "found.json", "--quiet",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads((tmp_path / "found.json").read_text())
    assert len(report["images"]) >= 3
    for image in report["images"]:
        found = masking.detect(image["file"], wanted)
        assert found.to_dict() == image["detections"]
        assert found.size == (image["width"], image["height"])
    assert sum(len(image["detections"]) for image in report["images"]) > 8


def test_an_image_in_any_form_gives_the_same(detector: ocelli.Detector, scenes: Path, park: np.ndarray) -> None:
    expected = detector.detect(park, PARK_CLASSES)
    assert [one.class_name for one in expected].count("dog") == 2
    padded = np.zeros((park.shape[0] + 2, park.shape[1] + 5, 3), np.uint8)
    padded[1:-1, 2:-3] = park
    read_only = park.copy()
    read_only.flags.writeable = False
    bgr = np.ascontiguousarray(park[..., ::-1])
    forms = {
        "path": (scenes / "park.png", "rgb"),
        "text": (str(scenes / "park.png"), "bgr"),
        "PIL": (PIL.Image.open(scenes / "park.png"), "rgb"),
        "padded rows": (padded[1:-1, 2:-3], "rgb"),
        "mirrored twice": (np.ascontiguousarray(park[:, ::-1])[:, ::-1], "rgb"),
        "Fortran order": (np.asfortranarray(park), "rgb"),
        "read only": (read_only, "rgb"),
        "BGR": (bgr, "bgr"),
        "BGR view": (bgr[..., ::-1], "rgb"),
        "memoryview": (np.asarray(memoryview(park)), "rgb"),
    }
    for name, (image, order) in forms.items():
        assert detector.detect(image, PARK_CLASSES, channel_order=order) == expected, name  # type: ignore[arg-type]
    assert detector.detect(park, PARK_CLASSES, channel_order="bgr") != expected


def test_features_are_searched_again(masking: ocelli.Detector, park: np.ndarray) -> None:
    features = masking.encode(park)
    assert features.size == (park.shape[1], park.shape[0])
    for classes in (PARK_CLASSES, ["tree"], PARK_CLASSES):
        assert masking.detect_features(features, classes) == masking.detect(park, classes)


@pytest.fixture(scope="module")
def clicking(tracker_model: Path) -> ocelli.Detector:
    return ocelli.Detector(tracker_model, engine="embedded")


def test_objects_are_segmented_by_clicks_boxes_and_masks(clicking: ocelli.Detector, park: np.ndarray) -> None:
    features = clicking.encode(park)
    height, width = park.shape[:2]
    click = ocelli.ObjectPrompt(points=[(width / 2, height / 2)])
    box = ocelli.ObjectPrompt(box=(10, 10, width / 2, height / 2), negative_points=[(5, 5)])
    first, second = clicking.segment(features, [click, box])
    assert first.mask.to_array().shape == (height, width) and 0 < first.mask.area < width * height
    assert 0 <= first.predicted_iou <= 1 and first.logits.ndim == 2
    assert second.mask != first.mask
    (alone,) = clicking.segment(features, click)
    assert (alone.mask, alone.predicted_iou) == (first.mask, first.predicted_iou)
    (three,) = clicking.segment(features, click, multimask=True)
    assert len(three) == 3 and first.mask in [one.mask for one in three]
    assert first.predicted_iou == max(one.predicted_iou for one in three)
    again = ocelli.ObjectPrompt(points=click.points, negative_points=[(5, 5)], mask=first)
    (refined,) = clicking.segment(features, again)
    assert refined.mask != first.mask
    for mask in (first.mask, first.mask.to_array()):
        (from_mask,) = clicking.segment(features, ocelli.ObjectPrompt(mask=mask))
        assert from_mask.mask.area > 0


def test_objects_that_are_not_shown_are_refused(
    clicking: ocelli.Detector, masking: ocelli.Detector, park: np.ndarray
) -> None:
    features = clicking.encode(park)
    for prompt, words in [
        (ocelli.ObjectPrompt(), "nothing shows where it is"),
        (ocelli.ObjectPrompt(negative_points=[(1, 1)]), "nothing shows where it is"),
        (ocelli.ObjectPrompt(points=[(-1, 1)], label="dog"), 'object "dog": point -1,1 is outside'),
        (ocelli.ObjectPrompt(points=[(1, 2, 3)]), "expected two numbers"),
        (ocelli.ObjectPrompt(box=(1, 2, 3)), "expected four numbers"),
        (ocelli.ObjectPrompt(mask=np.ones((3, 4))), "the mask prompt has 4 × 3 pixels"),
    ]:
        with pytest.raises(ocelli.InvalidArgument, match=words):
            clicking.segment(features, prompt)
    with pytest.raises(ocelli.Mismatch, match="has no tracker"):
        masking.segment(masking.encode(park), ocelli.ObjectPrompt(points=[(5, 5)]))


def test_columns_rows_and_indices(detector: ocelli.Detector, park: np.ndarray) -> None:
    found = detector.detect(park, PARK_CLASSES)
    n = len(found)
    assert n == 4
    assert (found.xyxy.shape, found.xyxy.dtype) == ((n, 4), np.float32)
    assert (found.confidence.shape, found.confidence.dtype) == ((n,), np.float32)
    assert (found.class_id.shape, found.class_id.dtype) == ((n,), np.int64)
    assert found.class_name.tolist() == [PARK_CLASSES[index] for index in found.class_id]
    assert found.masks is None and found.tracker_id is None and found.mask_array is None
    assert found.classes == tuple(PARK_CLASSES)
    assert sorted(found.confidence.tolist(), reverse=True) == found.confidence.tolist()
    assert {"preprocess", "backbone", "decode", "total"} <= found.times_ms.keys()
    assert found[0].xyxy == tuple(found.xyxy[0].tolist())
    assert found[-1] == found[n - 1]
    assert [one.class_name for one in found] == found.class_name.tolist()
    dogs = found[found.class_name == "dog"]
    assert len(dogs) == 2 and set(dogs.class_name) == {"dog"}
    assert found[[1, 0]][0] == found[1]
    assert len(found[:0]) == 0 and found[:0].to_dict() == [] and repr(found[:0]) == "Detections(0)"
    with pytest.raises(IndexError, match="detection 9: there are 4"):
        found[9]
    nothing = detector.detect(np.zeros((40, 60, 3), np.uint8), ["dog"])
    assert len(nothing) == 0 and nothing.xyxy.shape == (0, 4)


def test_masks_as_run_lengths_and_as_arrays(masking: ocelli.Detector, park: np.ndarray) -> None:
    found = masking.detect(park, PARK_CLASSES)
    assert found.masks is not None and len(found.masks) == len(found) == 4
    arrays = found.mask_array
    assert arrays is not None and arrays.shape == (4, *park.shape[:2]) and arrays.dtype == np.bool_
    for mask, array, box in zip(found.masks, arrays, found.xyxy, strict=True):
        assert mask.area == array.sum() > 100
        assert ocelli.Mask.from_array(array) == mask
        left, top, right, bottom = box.round().astype(int)
        inside = array[top:bottom, left:right]
        assert inside.sum() > 0.9 * mask.area and inside.mean() > 0.25


def test_coco_annotations(masking: ocelli.Detector, park: np.ndarray) -> None:
    pycocotools = pytest.importorskip("pycocotools.mask")
    found = masking.detect(park, PARK_CLASSES)
    annotations = found.to_coco(image_id=7, first_id=100)
    assert [one["id"] for one in annotations] == [100, 101, 102, 103]
    for one, annotation, record in zip(found, annotations, found.to_dict(), strict=True):
        assert (annotation["image_id"], annotation["category_id"]) == (7, one.class_id + 1)
        assert annotation["score"] == record["score"]
        left, top, width, height = annotation["bbox"]
        assert [left, top] == record["box"][:2]
        assert abs(left + width - record["box"][2]) < 0.02 and abs(top + height - record["box"][3]) < 0.02
        assert pycocotools.area(annotation["segmentation"]) == annotation["area"]
    json.dumps(annotations)


def test_exemplars(detector: ocelli.Detector, park: np.ndarray) -> None:
    dogs = detector.detect(park, ["dog"])
    box = dogs[0].xyxy
    found = detector.detect(park, ocelli.Prompt(label="like this", exemplars=[box]))
    assert "like this" in found.class_name
    centre = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    hit = [one for one in found if one.xyxy[0] < centre[0] < one.xyxy[2] and one.xyxy[1] < centre[1] < one.xyxy[3]]
    assert hit
    # In the same image, boxes of another image mean the same.
    elsewhere = detector.detect(park, ocelli.Prompt("dog", exemplars=[box]), exemplar_image=park)
    assert elsewhere == detector.detect(park, ocelli.Prompt("dog", exemplars=[box]))
    both = ocelli.Prompt("dog", exemplars=[box], counterexamples=[dogs[1].xyxy])
    assert detector.detect(park, both) != detector.detect(park, "dog")


def test_thresholds(park: np.ndarray) -> None:
    every = ocelli.Detector(engine="embedded", confidence=0.0, nms=1.0).detect(park, PARK_CLASSES)
    few = ocelli.Detector(engine="embedded", max_detections=2).detect(park, PARK_CLASSES)
    assert len(every) > 100 and len(few) == 2
    assert few[0] == every[0]


def test_a_first_pass_and_the_fastest_format(park: np.ndarray, detector: ocelli.Detector) -> None:
    expected = detector.detect(park, PARK_CLASSES)
    keeps_all = ocelli.Detector(engine="embedded", screen=0.0, precision="auto")
    # Graphs for two sizes of the grid round differently.
    found = keeps_all.detect(park, PARK_CLASSES)
    assert found.class_id.tolist() == expected.class_id.tolist()
    assert np.abs(found.confidence - expected.confidence).max() < 1e-5
    assert np.abs(found.xyxy - expected.xyxy).max() < 1e-2
    drops_all = ocelli.Detector(engine="embedded", screen=1.0)
    assert len(drops_all.detect(park, PARK_CLASSES)) == 0


def test_tiles_find_small_objects(park: np.ndarray) -> None:
    small = np.zeros((900, 900, 3), np.uint8)
    height, width, _ = park.shape
    small[:height, :width] = park
    whole = ocelli.Detector(engine="embedded").detect(small, PARK_CLASSES)
    tiled = ocelli.Detector(engine="embedded", tile=(width, height), tile_overlap=0.1).detect(small, PARK_CLASSES)
    assert len(tiled) >= 4 and len(tiled) >= len(whole)
    same = ocelli.Detector(engine="embedded", tile=2000).detect(small, PARK_CLASSES)
    assert same == whole


def test_results_can_be_pickled(masking: ocelli.Detector, park: np.ndarray) -> None:
    found = masking.detect(park, PARK_CLASSES)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(found, protocol))
        assert again == found and again.to_json() == found.to_json() and again.times_ms == found.times_ms
    assert pickle.loads(pickle.dumps(found[0])) == found[0]


def test_eight_threads_share_one_detector(detector: ocelli.Detector, scenes: Path) -> None:
    images = [ocelli.read_image(path) for path in sorted(scenes.glob("*.png"))[:4]]
    expected = [detector.detect(image, PARK_CLASSES) for image in images]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        jobs = [(index, pool.submit(detector.detect, images[index], PARK_CLASSES)) for index in list(range(4)) * 6]
        for index, job in jobs:
            assert job.result() == expected[index]


def test_eight_threads_with_a_detector_each(park: np.ndarray, detector: ocelli.Detector) -> None:
    expected = detector.detect(park, PARK_CLASSES)

    def work(_: int) -> list[ocelli.Detections]:
        own = ocelli.Detector(engine="embedded", threads=1)
        return [own.detect(park, PARK_CLASSES) for _ in range(3)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for results in pool.map(work, range(8)):
            assert results == [expected] * 3


def test_other_python_threads_run_while_it_detects(detector: ocelli.Detector, park: np.ndarray) -> None:
    import threading

    counted, done = 0, threading.Event()

    def count() -> None:
        nonlocal counted
        while not done.wait(0.001):
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    detector.detect(park, list(ocelli.vocabulary()))
    during = counted - before
    done.set()
    thread.join()
    assert during > 20


def test_supervision_annotates_an_image(masking: ocelli.Detector, park: np.ndarray) -> None:
    sv = pytest.importorskip("supervision")
    found = masking.detect(park, PARK_CLASSES).to_supervision()
    assert len(found) == 4 and found.mask.shape == (4, *park.shape[:2])
    assert list(found.data["class_name"]) == [PARK_CLASSES[index] for index in found.class_id]
    drawn = sv.MaskAnnotator().annotate(park.copy(), found)
    drawn = sv.BoxAnnotator().annotate(drawn, found)
    drawn = sv.LabelAnnotator().annotate(drawn, found, labels=list(found.data["class_name"]))
    assert (drawn != park).any(axis=2).mean() > 0.05


def test_plot(masking: ocelli.Detector, park: np.ndarray, program: Run, scenes: Path, tmp_path: Path) -> None:
    found = masking.detect(park, PARK_CLASSES)
    before = park.copy()
    drawn = found.plot(park)
    assert drawn.shape == park.shape and drawn.dtype == np.uint8
    assert (park == before).all() and (drawn != park).any()
    bgr = found.plot(np.ascontiguousarray(park[..., ::-1]), channel_order="bgr")
    assert (bgr[..., ::-1] == drawn).all()
    assert (found.plot(scenes / "park.png") == drawn).all()
    ran = program(
        "ocelli", "detect", "--engine", "embedded", "--masks", "--image", scenes / "park.png", "--classes", *PARK_CLASSES,
        "-o", tmp_path / "drawn.png",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (ocelli.read_image(tmp_path / "drawn.png") == drawn).all()


def test_memory_stays_the_same(masking: ocelli.Detector) -> None:
    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    frame = np.random.default_rng(1).integers(0, 255, (1080, 1920, 3), np.uint8)
    strided = frame[:, ::-1]

    def rounds(count: int) -> None:
        for _ in range(count):
            found = masking.detect(frame, ["dog"])
            masking.detect(strided, ["dog"], channel_order="bgr")
            found.to_json()
            found.plot(frame)

    rounds(15)
    before = resident()
    rounds(60)
    # One leaked frame of the 240 copies would be 6 MB.
    assert resident() - before < 24_000
