"""The options of `train.py`: what suits a CPU and what suits a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from model import IMAGE_SIZES
from tokenizer import SHIPPED
from vocabulary import KNOWN, VOCABULARY


def parse_arguments() -> argparse.Namespace:
    """Batch sizes have a default for each device."""
    parser = argparse.ArgumentParser(
        description="Trains the built-in model on drawn scenes, on a CPU or on a GPU with the same command.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run; made if missing")
    parser.add_argument("--minutes", type=float, default=60, help="time to train now (default 60)")
    parser.add_argument("--schedule-minutes", type=float, help="time of the whole run, if this is a part of it")
    parser.add_argument("--steps", type=int, help="end after this step, whatever the time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        help="cpu or cuda (default: what is there)")
    parser.add_argument("--start", default=str(SHIPPED.parent),
                        help="checkpoint folder to start from, or none (default: the built-in model)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --output")
    parser.add_argument("--anew", action="store_true", help="with --resume: the schedule begins again, with its rate")
    parser.add_argument("--resume-portable", type=Path, metavar="DIR", help="go on from a portable checkpoint")
    parser.add_argument("--portable", action="store_true", help="write a portable checkpoint, too")
    parser.add_argument("--side", type=int, default=224, choices=IMAGE_SIZES,
                        help="of the pictures in pixels (default 224)")
    parser.add_argument("--names", type=int, default=len(VOCABULARY),
                        help=f"how many names to learn, up to {len(KNOWN)} (default {len(VOCABULARY)})")
    parser.add_argument("--pictures", type=int, help="scenes a batch (default 16, on a GPU 128)")
    parser.add_argument("--prompts", type=int, help="names asked a scene (default 4, on a GPU 8)")
    parser.add_argument("--mask-rows", type=int,
                        help="prompts a batch whose masks are learnt (default 12, on a GPU 192)")
    parser.add_argument("--masks-only", action="store_true",
                        help="only what masks alone are made of learns; boxes and scores stay as they are")
    parser.add_argument("--rate", type=float, help="learning rate (default 5e-4, on a GPU 8e-4)")
    parser.add_argument("--workers", type=int, help="processes that plan batches (default 0, on a GPU 4)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--processes", type=int, default=1,
                        help="CPU processes that share threads and scenes; better than threads on a busy machine")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the scenes (default 0)")
    parser.add_argument("--full-precision", action="store_true",
                        help="float32, in place of mixed bfloat16 where the device has it")
    parser.add_argument("--compile", action="store_true",
                        help="torch.compile for the encoders: slower to start, then faster")
    parser.add_argument("--relearn-words", action="store_true", help="learn the tokeniser anew (with --start none)")
    arguments = parser.parse_args()
    on_gpu = arguments.device.startswith("cuda")
    for name, cpu, gpu in (("pictures", 16, 128), ("prompts", 4, 8), ("mask_rows", 12, 192), ("rate", 5e-4, 8e-4),
                           ("workers", 0, 4)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, gpu if on_gpu else cpu)
    arguments.schedule_minutes = arguments.schedule_minutes or arguments.minutes
    if not 8 <= arguments.names <= len(KNOWN):
        parser.error(f"--names: {arguments.names} is not between 8 and {len(KNOWN)}")
    if arguments.anew and not arguments.resume:
        parser.error("--anew: there is no schedule to begin again without --resume")
    if arguments.processes > 1 and (on_gpu or arguments.pictures % arguments.processes):
        parser.error("--processes: on a CPU only, and dividing --pictures")
    return arguments
