"""Exports records of logs to Parquet files in a folder, or to a table of Delta or Iceberg: the parts of the job
`export` without Spark.

`layout` has the names and columns, `manifest` the record of what was exported, `plan` the choice of what to export,
`tasks` the work of a task, `value_columns` the decoding of values, `commit` the step by which files become part of the
export, `delta` and `iceberg` that for a table, `report` the report, `arguments` the forms of user input.
"""
