"""The options of `train.py`, with defaults for a CPU and for a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from model import IMAGE_SIZES
from tokenizer import SHIPPED
from vocabulary import KNOWN, VOCABULARY


def parse_arguments() -> argparse.Namespace:
    """Parses the command line; batch sizes have a default for each device."""
    parser = argparse.ArgumentParser(
        description="Trains the built-in model on drawn scenes, on a CPU or on a GPU with the same command.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the run; created if missing")
    parser.add_argument("--minutes", type=float, default=60, help="training time of this call (default 60)")
    parser.add_argument("--schedule-minutes", type=float, help="time of the whole run, if this call is a part of it")
    parser.add_argument("--steps", type=int, help="stop after this step")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        help="cpu or cuda (default: cuda if available)")
    parser.add_argument("--start", default=str(SHIPPED.parent),
                        help="checkpoint folder to start from, or none (default: the built-in model)")
    parser.add_argument("--resume", action="store_true", help="continue the run in --output")
    parser.add_argument("--anew", action="store_true", help="with --resume: restart the schedule and its learning rate")
    parser.add_argument("--resume-portable", type=Path, metavar="DIR", help="continue from a portable checkpoint")
    parser.add_argument("--portable", action="store_true", help="also write a portable checkpoint")
    parser.add_argument("--side", type=int, default=224, choices=IMAGE_SIZES,
                        help="side of the images in pixels (default 224)")
    parser.add_argument("--names", type=int, default=len(VOCABULARY),
                        help=f"number of names to learn, up to {len(KNOWN)} (default {len(VOCABULARY)})")
    parser.add_argument("--images", type=int, help="scenes per batch (default 16, on a GPU 128)")
    parser.add_argument("--prompts", type=int, help="prompts per scene (default 4, on a GPU 8)")
    parser.add_argument("--mask-rows", type=int,
                        help="prompts per batch with a mask loss (default 12, on a GPU 192)")
    parser.add_argument("--masks-only", action="store_true",
                        help="train the layers for masks only; boxes and scores do not change")
    parser.add_argument("--rate", type=float, help="learning rate (default 5e-4, on a GPU 8e-4)")
    parser.add_argument("--workers", type=int, help="processes that plan batches (default 0, on a GPU 4)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--processes", type=int, default=1,
                        help="CPU processes that share threads and scenes; better than threads on a busy machine")
    parser.add_argument("--seed", type=int, default=0, help="random seed of weights and scenes (default 0)")
    parser.add_argument("--full-precision", action="store_true",
                        help="float32 instead of mixed bfloat16")
    parser.add_argument("--compile", action="store_true",
                        help="torch.compile for the encoders: slower to start, then faster")
    parser.add_argument("--relearn-words", action="store_true", help="train a new tokeniser (with --start none)")
    arguments = parser.parse_args()
    on_gpu = arguments.device.startswith("cuda")
    for name, cpu, gpu in (("images", 16, 128), ("prompts", 4, 8), ("mask_rows", 12, 192), ("rate", 5e-4, 8e-4),
                           ("workers", 0, 4)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, gpu if on_gpu else cpu)
    arguments.schedule_minutes = arguments.schedule_minutes or arguments.minutes
    if not 8 <= arguments.names <= len(KNOWN):
        parser.error(f"--names: {arguments.names} is not between 8 and {len(KNOWN)}")
    if arguments.anew and not arguments.resume:
        parser.error("--anew: requires --resume")
    if arguments.processes > 1 and (on_gpu or arguments.images % arguments.processes):
        parser.error("--processes: for CPUs only, and must divide --images")
    return arguments
