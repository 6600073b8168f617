"""Runs distillations one after the other in the processes of torchrun; the file has the options of one in each line."""

import json
import sys
from pathlib import Path

import torch.distributed

from ocelli_training.__main__ import main

# Once for all of them: PyTorch's shards cannot be made again in another group of the same processes.
torch.distributed.init_process_group("gloo")
for line in Path(sys.argv[1]).read_text().splitlines():
    status = main(json.loads(line))
    if status:
        sys.exit(status)
torch.distributed.destroy_process_group()
