"""The console scripts: the programs, which are in the extension module."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from . import _decode, _ocelli
from ._environment import search_this_environment


def _run(name: str) -> NoReturn:
    search_this_environment()
    status = _ocelli.run_program(name, [name, *sys.argv[1:]], _decode.instead())
    sys.stdout.flush()
    sys.stderr.flush()
    # At once: a thread may still wait for a frame that never comes.
    os._exit(status)


def ocelli() -> NoReturn:
    """`ocelli`."""
    _run("ocelli")


def demo_image() -> NoReturn:
    """`demo-image`."""
    _run("demo-image")


def demo_video() -> NoReturn:
    """`demo-video`."""
    _run("demo-video")
