"""Where this interpreter keeps its packages, in which the engines' libraries are searched for."""

from __future__ import annotations

import site
import sysconfig

from . import _ocelli


def search_this_environment() -> None:
    """Has the engines' libraries searched for in the packages of this interpreter, before other places."""
    paths = sysconfig.get_paths()
    folders = [paths["platlib"], paths["purelib"], *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    _ocelli.set_python_packages(list(dict.fromkeys(folders)))
