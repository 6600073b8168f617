"""`python -m ocelli_training distill`."""

from __future__ import annotations

import torch
import transformers

from ..errors import InputError
from .arguments import parse
from .loop import Run
from .processes import Processes


def main(arguments: list[str]) -> int:
    """Runs a distillation; returns the exit status. Raises `InputError` for bad input."""
    options = parse(arguments)
    if options.threads:
        torch.set_num_threads(options.threads)
    transformers.logging.set_verbosity_error()
    processes = Processes.start(options.device)
    try:
        status = Run(options, processes).run()
    except InputError as error:
        # Another process may have another disk, or other images.
        raise InputError(f"process {processes.rank}: {error}" if processes.count > 1 else str(error)) from error
    processes.stop()
    return status
