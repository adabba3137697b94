"""Records of logs as Parquet files in a folder, or as a Delta table: the part of the job `export` that knows no Spark.

`layout` has the names and columns, `manifest` what was exported already, `planning` what is to be, `writing` what a
task does, `decoding` what it makes of values, `committing` how files become part of the export, `delta` how they become
part of a table, `report` what is told of it, `asking` how people say what they want.
"""

from __future__ import annotations
