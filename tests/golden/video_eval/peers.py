"""The figures of the field's own evaluations, as JSON pointers into the report of `ocelli eval --video`.

From PyPI: `trackeval`, `sam3` (without its dependencies) and `pycocotools`. The evaluations of YouTube-VIS and DAVIS are not on
PyPI: `tools` is a folder with checkouts of `youtubevos/cocoapi` (as `cocoapi`) and `davis2017-evaluation`. Without it the
figures of YouTube-VIS by mean area, and those of DAVIS with given ids, are left out; the others are from `sam3` and
`trackeval`.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import importlib
import importlib.util
import io
import json
import shutil
import sys
import tempfile
import types
from pathlib import Path
from unittest import mock

import numpy as np
import trackeval
from pycocotools import mask as codec
from trackeval import datasets, metrics

QUIET = {"PRINT_CONFIG": False}
NAMES = {
    "HOTA": {"hota": "HOTA", "det_a": "DetA", "ass_a": "AssA", "det_re": "DetRe", "det_pr": "DetPr", "ass_re": "AssRe",
             "ass_pr": "AssPr", "loc_a": "LocA"},
    "CLEAR": {"mota": "MOTA", "motp": "MOTP", "true_positives": "CLR_TP", "false_positives": "CLR_FP",
              "false_negatives": "CLR_FN", "id_switches": "IDSW", "mostly_tracked": "MT", "partly_tracked": "PT",
              "mostly_lost": "ML", "fragmentations": "Frag"},
    "Identity": {"idf1": "IDF1", "idr": "IDR", "idp": "IDP"},
}
PRECISION = ["ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large", "ar1", "ar10", "ar100", "ar_small", "ar_medium",
             "ar_large"]
CGF1 = {"cgf1": "cgF1", "cgf1_50": "cgF1@0.5", "cgf1_75": "cgF1@0.75", "il_mcc": "IL_MCC",
        "positive_micro_f1": "positive_micro_F1", "positive_micro_f1_50": "positive_micro_F1@0.5",
        "positive_micro_f1_75": "positive_micro_F1@0.75", "positive_micro_precision": "positive_micro_precision",
        "positive_macro_f1": "positive_macro_F1", "f1": "F1", "precision": "precision", "recall": "recall",
        "il_precision": "IL_precision", "il_recall": "IL_recall", "il_f1": "IL_F1", "il_fpr": "IL_FPR"}


def tracks(dataset, tracker: str, classes: list[str]):
    """For each class and sequence, and for all of a class, of a sequence and together, what TrackEval's metrics say."""
    judges = {"HOTA": metrics.HOTA(), "CLEAR": metrics.CLEAR(QUIET), "Identity": metrics.Identity(QUIET)}
    raw = {seq: dataset.get_raw_seq_data(tracker, seq) for seq in dataset.seq_list}
    single = {}
    for name in classes:
        for seq in dataset.seq_list:
            data = dataset.get_preprocessed_seq_data(copy.deepcopy(raw[seq]), name)
            single[name, seq] = {judge: one.eval_sequence(data) for judge, one in judges.items()}

    def figures(keys):
        merged = {judge: single[keys[0]][judge] if len(keys) == 1 else one.combine_sequences(
            {key: single[key][judge] for key in keys}) for judge, one in judges.items()}
        return {ours: float(np.mean(merged[judge][theirs])) for judge, names in NAMES.items()
                for ours, theirs in names.items()}

    return figures, single


def text_tracks(folder: Path, case: dict) -> dict:
    truth, found = folder / case["truth"][0], folder / case["predictions"]
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        shutil.copytree(found, place / "trackers/ours/data")
        config = {"GT_FOLDER": str(truth), "TRACKERS_FOLDER": str(place / "trackers"), "SKIP_SPLIT_FOL": True, **QUIET}
        sequences = sorted(path.name for path in truth.iterdir())
        config |= {"BENCHMARK": case["name"].upper(), "SEQ_INFO": dict.fromkeys(sequences)}
        figures, _ = tracks(datasets.MotChallenge2DBox(config), "ours", ["pedestrian"])
    keys = [("pedestrian", seq) for seq in sequences]
    expected = {"/tracks/all": figures(keys)}
    for place, key in enumerate(keys):
        expected[f"/tracks/per_sequence/{place}"] = figures([key])
    return expected


@contextlib.contextmanager
def sam3_modules():
    """The package without its models: what they need is replaced by nothing."""
    root = Path(importlib.util.find_spec("sam3").submodule_search_locations[0])
    stubs = {}
    for name in ("sam3", "sam3.eval"):
        stubs[name] = types.ModuleType(name)
        stubs[name].__path__ = [str(root.joinpath(*name.split(".")[1:]))]
    others = ["torch", "iopath", "iopath.common", "iopath.common.file_io", "sam3.eval.coco_eval_offline", "sam3.model",
              "sam3.model.box_ops", "sam3.train", "sam3.train.masks_ops", "sam3.train.utils", "sam3.train.nms_helper",
              "sam3.eval.teta_eval_toolkit", "sam3.eval.teta_eval_toolkit.datasets", "sam3.eval.conversion_util",
              "sam3.eval.hota_eval_toolkit", "sam3.eval.hota_eval_toolkit.run_ytvis_eval"]
    stubs |= {name: mock.MagicMock() for name in others}
    with mock.patch.dict(sys.modules, stubs):
        yield


def vis_tracks(folder: Path, case: dict, truth: dict, found: list) -> dict:
    truth, found = copy.deepcopy(truth), copy.deepcopy(found)
    for one in truth["annotations"]:
        one["segmentations"] = [None if mask is None else runs(mask) for mask in one["segmentations"]]
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        (place / "gt/youtube_vis_train_sub_split").mkdir(parents=True)
        (place / "gt/youtube_vis_train_sub_split/truth.json").write_text(json.dumps(truth))
        (place / "trackers/youtube_vis_train_sub_split/ours/data").mkdir(parents=True)
        (place / "trackers/youtube_vis_train_sub_split/ours/data/tracks.json").write_text(json.dumps(found))
        config = {"GT_FOLDER": f"{place}/gt/", "TRACKERS_FOLDER": f"{place}/trackers/", **QUIET}
        dataset = datasets.YouTubeVIS(config)
        figures, single = tracks(dataset, "ours", dataset.class_list)
    expected = {"/tracks/all": figures(list(single))}
    used = {one["category_id"] for one in truth["annotations"]} | {one["category_id"] for one in found}
    own = [one for one in sorted(truth["categories"], key=lambda one: one["id"]) if one["id"] in used]
    for place, one in enumerate(own):
        keys = [key for key in single if key[0] == one["name"]]
        expected[f"/tracks/per_class/{place}"] = figures(keys)
        if not any(annotation["category_id"] == one["id"] for annotation in truth["annotations"]):
            # Minus the number of false positives there, 0 for one sequence.
            expected[f"/tracks/per_class/{place}"].pop("mota")
    return expected


def runs(mask: dict) -> dict:
    if isinstance(mask["counts"], list):
        return mask
    flat = codec.decode({"size": mask["size"], "counts": mask["counts"].encode()}).flatten(order="F")
    edges = [0, *np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist(), flat.size]
    return {"size": mask["size"], "counts": [int(b - a) for a, b in zip(edges, edges[1:])]}


def vis(folder: Path, case: dict, tools: Path | None) -> dict:
    truth = json.loads((folder / case["truth"][0]).read_text())
    found = json.loads((folder / case["predictions"]).read_text())
    expected = vis_tracks(folder, case, truth, found)
    # `sam3`: no uncompressed masks, and a mean area over all frames.
    packed = copy.deepcopy(truth)
    for one in packed["annotations"]:
        one["segmentations"] = [None if mask is None else codec.frPyObjects(runs(mask), *mask["size"])
                                for mask in one["segmentations"]]
    with sam3_modules():
        ytvis = importlib.import_module("sam3.eval.ytvis_eval")
        wrapper = importlib.import_module("sam3.eval.ytvis_coco_wrapper")
        saco = importlib.import_module("sam3.eval.saco_veval_evaluators")
        cgf1 = importlib.import_module("sam3.eval.cgf1_eval")

        def stats(kind, truth, found, categories, **settings):
            truth, found = copy.deepcopy(truth), copy.deepcopy(found)
            for one in found:
                one["image_id"] = one["video_id"]
                one["areas"] = [0 if mask is None else int(codec.area(mask)) for mask in one["segmentations"]]
                one["bboxes"] = [[0, 0, 1, 1]] * len(one["areas"])
            objects = wrapper.YTVIS(annotation_file=None, ignore_gt_cats=not categories)
            objects.dataset = truth
            objects.createIndex()
            judge = kind(objects, objects.loadRes(found), "segm")
            judge.params.useCats = categories
            for name, value in settings.items():
                setattr(judge.params, name, value)
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
            return judge.stats

        values = stats(ytvis.YTVISeval, packed, found, True)
        expected["/segm"] = {name: float(values[place]) for place, name in enumerate(PRECISION)
                             if not name.endswith(("small", "medium", "large"))}
        remapped = saco.remap_video_category_pairs_to_unique_video_ids(
            copy.deepcopy(packed), copy.deepcopy(found), add_negative_np_pairs=True)
        values = stats(ytvis.VideoDemoF1Eval, *remapped, False, areaRng=[[0, 1e10]], areaRngLbl=["all"], maxDets=[100000])
        names = [one.name + (f"@{one.iou_threshold}" if one.iou_threshold else "") for one in cgf1.CGF1_METRICS]
        values = dict(zip(names, map(float, values)))
        expected["/cgf1_segm"] = {ours: values[theirs] for ours, theirs in CGF1.items()}
    if tools:
        expected["/segm"] = official_vis(tools, truth, found)
    return expected


def official_vis(tools: Path, truth: dict, found: list) -> dict:
    """The evaluation of YouTube-VIS, with what Python and NumPy no longer have."""
    package = types.ModuleType("pycocotools_vis")
    package.__path__ = [str(tools / "cocoapi/PythonAPI/pycocotools")]
    linspace = np.linspace
    with mock.patch.dict(sys.modules, {"pycocotools_vis": package, "pycocotools_vis.mask": codec}), \
            mock.patch.object(np, "float", float, create=True), mock.patch.object(builtins, "unicode", str, create=True), \
            mock.patch.object(np, "linspace", lambda a, b, n=50, **other: linspace(a, b, int(n), **other)):
        package.mask = codec
        ytvos = importlib.import_module("pycocotools_vis.ytvos")
        ytvoseval = importlib.import_module("pycocotools_vis.ytvoseval")
        objects = ytvos.YTVOS()
        objects.dataset = copy.deepcopy(truth)
        objects.createIndex()
        judge = ytvoseval.YTVOSeval(objects, objects.loadRes(copy.deepcopy(found)), "segm")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return {name: None if value < 0 else float(value) for name, value in zip(PRECISION, judge.stats)}


def saco(folder: Path, case: dict) -> dict:
    with sam3_modules():
        cgf1 = importlib.import_module("sam3.eval.cgf1_eval")
        expected = {}
        for kind in ("bbox", "segm"):
            judge = cgf1.CGF1Evaluator([str(folder / one) for one in case["truth"]], iou_type=kind)
            values = judge.evaluate(str(folder / case["predictions"]))
            expected[f"/cgf1_{kind}"] = {ours: values[f"cgF1_eval_{kind}_{theirs}"] for ours, theirs in CGF1.items()}
    return expected


def davis(folder: Path, case: dict, tools: Path | None) -> dict:
    truth, found = folder / case["truth"][0], folder / case["predictions"]
    if tools:
        return official_davis(tools, truth, found, case["name"])
    judge = metrics.JAndF()
    judge.optim_type = "J&F"
    results = {}
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        shutil.copytree(found, place / "trackers/ours/data")
        first = lambda sequence: int(max(value for value in np.unique(pixels(sorted(sequence.iterdir())[0])) if value < 255))
        for sequence in truth.iterdir():
            # The objects of the first frame alone, as in DAVIS' own evaluation.
            for path in sequence.iterdir():
                values = pixels(path)
                values[(values > first(sequence)) & (values < 255)] = 0
                (place / "gt" / sequence.name).mkdir(parents=True, exist_ok=True)
                image(values, place / "gt" / sequence.name / path.name)
        config = {"GT_FOLDER": f"{place}/gt", "TRACKERS_FOLDER": f"{place}/trackers", **QUIET}
        dataset = datasets.DAVIS(config)
        for seq in dataset.seq_list:
            data = dataset.get_preprocessed_seq_data(dataset.get_raw_seq_data("ours", seq), "general")
            # For DAVIS' own evaluation a number that no pixel has is an object, too; TrackEval counts the numbers that occur.
            data["num_gt_ids"] = first(truth / seq)
            data["num_tracker_ids"] = max(int(pixels(path).max()) for path in (found / seq).iterdir())
            results[seq] = judge.eval_sequence(data)
    all = judge.combine_sequences(results)
    names = {"j_and_f": "J&F", "j_mean": "J-Mean", "j_recall": "J-Recall", "j_decay": "J-Decay", "f_mean": "F-Mean",
             "f_recall": "F-Recall", "f_decay": "F-Decay"}
    return {"/unsupervised": {ours: float(all[theirs]) for ours, theirs in names.items()}}


def pixels(path: Path) -> np.ndarray:
    from PIL import Image

    return np.array(Image.open(path))


def image(values: np.ndarray, path: Path) -> None:
    from PIL import Image

    Image.fromarray(values).save(path)


def official_davis(tools: Path, truth: Path, found: Path, name: str) -> dict:
    with tempfile.TemporaryDirectory() as place, mock.patch.object(sys, "path", [str(tools / "davis2017-evaluation"), *sys.path]):
        place = Path(place)
        evaluation = importlib.import_module("davis2017.evaluation")
        for kind in ("Annotations", "Annotations_unsupervised"):
            shutil.copytree(truth, place / kind / "480p")
        (place / "ImageSets/2017").mkdir(parents=True)
        (place / "ImageSets/2017/val.txt").write_text("".join(f"{one.name}\n" for one in sorted(truth.iterdir())))
        expected = {}
        tasks = ["unsupervised"] + ["semi-supervised"] * (name == "davis-given")
        for task in tasks:
            judge = evaluation.DAVISEvaluation(str(place), task, "val", codalab=True)
            result = judge.evaluate(str(found))
            mean = {f"{kind}_{short}": float(np.mean(result[kind.upper()][letter])) for kind in "jf"
                    for short, letter in (("mean", "M"), ("recall", "R"), ("decay", "D"))}
            expected["/" + task.replace("-", "_")] = {"j_and_f": (mean["j_mean"] + mean["f_mean"]) / 2, **mean}
    return expected


def expected(folder: Path, case: dict, tools: Path | None) -> dict:
    """The figures of one case: a dictionary of figures for each part of the report."""
    name = case["name"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if name.startswith("mot"):
            return text_tracks(folder, case)
        if name == "vis":
            return vis(folder, case, tools)
        if name.startswith("davis"):
            return davis(folder, case, tools)
        return saco(folder, case)
