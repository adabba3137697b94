"""`ottla pipeline` as a program: `python -m ottla.pipeline census PATH`, and what `spark-submit` is given.

    spark-submit --master spark://host:7077 $(ottla pipeline --script) census PATH

The workers need Ottla installed in their Python, and to see the same log directories.
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    # Run by its path this file has no package, and the folder of its neighbours comes first in the path.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]
    sys.exit(importlib.import_module("ottla.pipeline.cli").pipeline(sys.argv[1:]))
