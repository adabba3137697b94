"""`ottla pipeline` as a program: `python -m ottla.pipeline census PATH`, and the script for `spark-submit`.

    spark-submit --master spark://host:7077 $(ottla pipeline --script) census PATH

The driver and the workers need Ottla installed in their Python, and the same log directories mounted.
"""

from __future__ import annotations

import importlib
import os
import sys

if __name__ == "__main__":
    # Run by its path, this file has no package, and Python puts its folder first in sys.path: `offsets.py` and its
    # siblings would shadow other modules.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]
    try:
        pipeline = importlib.import_module("ottla.pipeline.cli").pipeline
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] != "ottla":
            raise
        # spark-submit starts `python3` unless another is set.
        sys.stderr.write(
            f"ottla pipeline: the driver's Python, {sys.executable}, has no module {error.name}: set PYSPARK_PYTHON, "
            "or --conf spark.pyspark.python, to the path of a Python that has ottla[pipeline] on the driver and on "
            "every worker\n"
        )
        sys.exit(2)
    sys.exit(pipeline(sys.argv[1:]))
