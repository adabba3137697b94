"""`log.record.version.force.upgrade=2` (KIP-724, "Future Work"): converts every partition to message v2 at the start.

Owns the log lines: one for each partition that changed, some in between for large ones, and a total. `storage/` does
the conversion as each partition is opened, after its recovery. It may block the event loop, because the broker serves
no client yet; another process would make clients wait just as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..clock import Clock
from ..logs import get_logger
from .start_progress import Cadence

if TYPE_CHECKING:
    from ...storage.log.upgrade import OnUpgrade, UpgradeProgress

REPORT_MS = 5_000


class ForcedUpgrade:
    """The upgrade of `partitions` partitions, in one start."""

    def __init__(self, partitions: int, clock: Clock) -> None:
        self._partitions = partitions
        self._cadence = Cadence(clock, REPORT_MS, REPORT_MS)
        self._opened = 0
        self._changed: list[UpgradeProgress] = []  # the last report of each partition that changed

    def watch(self, topic: str, index: int) -> OnUpgrade:
        """Returns the progress callback for the next partition."""
        self._opened += 1
        name, number = f"{topic}-{index}", self._opened

        def on_upgrade(progress: UpgradeProgress) -> None:
            if progress.done:
                self._changed.append(progress)
                self._log("partition upgraded to v2", name, number, progress, written_bytes=progress.written_bytes)
            elif self._cadence.is_due():
                self._log("upgrading to v2", name, number, progress, of_bytes=progress.total_bytes)

        return on_upgrade

    def _log(self, event: str, name: str, number: int, progress: UpgradeProgress, **more: int) -> None:
        self._cadence.logged()
        get_logger().info(
            event,
            partition=name,
            number=number,
            of=self._partitions,
            records=progress.converted_records,
            bytes=progress.read_bytes,
            **more,
        )

    def finish(self) -> None:
        """Logs the total."""
        get_logger().info(
            "all partitions hold v2 only",
            partitions=self._opened,
            upgraded=len(self._changed),
            segments=sum(one.segments for one in self._changed),
            records=sum(one.converted_records for one in self._changed),
            bytes=sum(one.read_bytes for one in self._changed),
            written_bytes=sum(one.written_bytes for one in self._changed),
        )
