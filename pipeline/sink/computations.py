"""The digests of the rows that tasks computed, as an accumulator brings them to the driver.

Owns the accumulator and the reports of each write.
"""

from __future__ import annotations

from typing import ClassVar

from pyspark import Accumulator, AccumulatorParam, SparkContext

from .order import Computed

__all__ = ["Computations", "Reports"]

Reports = dict[str, dict[int, set[Computed]]]
"""The digests of each partition of a DataFrame, by the write that it was computed for."""


class _ReportsParam(AccumulatorParam[Reports]):
    """Merges the reports of tasks at the driver."""

    def zero(self, value: Reports) -> Reports:
        return {}

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:
        for write, partitions in value2.items():
            known = value1.setdefault(write, {})
            for partition, computed in partitions.items():
                known.setdefault(partition, set()).update(computed)
        return value1


class Computations:
    """The reports of completed tasks. Spark has received those of a stage before the next one begins. One accumulator
    serves all writes of a process, since PySpark never frees one."""

    _all: ClassVar[Accumulator[Reports] | None] = None

    @classmethod
    def of(cls, context: SparkContext) -> Accumulator[Reports]:
        """Returns the accumulator that tasks report to."""
        if cls._all is None:
            cls._all = context.accumulator({}, _ReportsParam())
        return cls._all

    @classmethod
    def taken(cls, write: str) -> dict[int, set[Computed]]:
        """Returns the reports of a write, and drops them."""
        return cls._all.value.pop(write, {}) if cls._all is not None else {}
