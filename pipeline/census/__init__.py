"""What lies in log directories: counted piece by piece, added up, and told. Owns no Spark and no processes."""

from __future__ import annotations

from .counting import count
from .facts import Amount, Damaged, Facts, Sizes, Times, merge
from .pieces import PIECE_BYTES, Plan, SegmentPiece, plan
from .report import CensusReport, report

__all__ = [
    "PIECE_BYTES",
    "Amount",
    "CensusReport",
    "Damaged",
    "Facts",
    "Plan",
    "SegmentPiece",
    "Sizes",
    "Times",
    "count",
    "merge",
    "plan",
    "report",
]
