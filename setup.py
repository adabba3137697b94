"""Compiles the check of records where OTTLA_COMPILE=1 is set, as for the image and for wheels of one platform.

Without it the package is plain Python. The source is the same: protocol/records/walk.pxd only adds types to walk.py. No
other module gained enough from it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from setuptools import Extension, setup

COMPILES = os.environ.get("OTTLA_COMPILE") == "1"


def extensions() -> list[Any]:
    """The modules to compile. Raises ImportError without Cython."""
    if not COMPILES:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if "egg_info" in sys.argv:  # the build only reads what it requires: Cython itself
            return []
        raise
    # Cython looks for walk.pxd by the module's name, in folders: there is no folder `ottla`.
    walk = Extension("protocol.records.walk", ["protocol/records/walk.py"])
    directives = {"language_level": 3, "annotation_typing": False}
    (compiled,) = cythonize([walk], include_path=["."], compiler_directives=directives, build_dir="build")
    if "memviewslice __pyx_v_payload" not in Path(compiled.sources[0]).read_text():
        raise RuntimeError("protocol/records/walk.pxd was not found: plain Python is faster than its module untyped")
    compiled.name = f"ottla.{walk.name}"
    return [compiled]


setup(ext_modules=extensions(), setup_requires=["cython>=3.1"] if COMPILES else [])
