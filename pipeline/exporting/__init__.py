"""Records of logs as Parquet files in a folder, or as a Delta table: the part of the job `export` that knows no Spark.

`layout` has the names and columns, `manifest` what was exported already, `planning` what is to be, `writing` what a
task does, `committing` how files become part of the export.
"""

from __future__ import annotations
