"""Audits log directories: checks segments in tasks, merges the results by partition, and reports findings.

Owns no Spark and no processes. `storage/check/` has the checks and the words of findings; this package has fast paths
with equal results, the checks of producers' sequences and transactions, and the report.
"""
