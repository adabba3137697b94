"""`ottla pipeline` as a program: `python -m ottla.pipeline census PATH`, and the script for `spark-submit`.

    spark-submit --master spark://host:7077 $(ottla pipeline --script) census PATH

The workers need Ottla installed in their Python, and the same log directories mounted.
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    # Run by its path, this file has no package, and Python puts its folder first in sys.path: `offsets.py` and its
    # siblings would shadow other modules.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]
    sys.exit(importlib.import_module("ottla.pipeline.cli").pipeline(sys.argv[1:]))
