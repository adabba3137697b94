"""The plain batches that several connections bring in one turn of the event loop: one write for each partition.

A read event of a client with many requests in flight brings a batch of them, whose write costs little for each. With
many clients of few requests each, the write of each read event would be most of the work. So while several connections
bring plain requests in the same turn, each leaves them here with copies of its frames, and the write follows as soon as
the loop has read all sockets. A connection that is alone does not wait: whether there are others is tried now and then.

Every request that takes the long way first has this written. What else changes a log before the write, a timer or a
handler that has waited, makes the runs stale; then nothing is written, and the frames go back to their connections,
which begin again with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ...storage.errors import StorageError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ...storage.log.append_run import AppendRun
    from ..replica.partition import Partition

TRIED_EVERY = 32
"""Read events of a lone connection of which one waits, to find out whether there are others."""
ALONE_MAX = 8
"""Turns with one connection after which it does not wait any more."""

Failed = dict["AppendRun", "StorageError | None"]
"""Runs that could not be written. The first batch of each gets the error, and the value is None from then on."""


class Waiting(Protocol):
    """A connection with requests that wait for the write."""

    def written(self, failed: Failed) -> None:
        """Sends the responses."""
        ...

    def put_back(self) -> None:
        """Takes the requests as if they had not begun; `resume` handles them."""
        ...

    def resume(self) -> None: ...

    def broke(self, error: Exception) -> None:
        """Closes the connection for an unexpected error."""
        ...


class PlainTurn:
    """The open runs of a broker's partitions, and the connections that wait for their write."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._runs: dict[Partition, AppendRun] = {}
        self._waiting: dict[Waiting, None] = {}  # in the order of their read events
        self._is_due = False
        self.collects = False
        """Whether connections wait for each other."""
        self._tries = self._alone = 0
        self._is_first = True  # of two read events that are tried

    @property
    def is_open(self) -> bool:
        """Whether runs have begun."""
        return bool(self._runs)

    def waits(self) -> bool:
        """Returns whether the requests of this read event wait for those of others."""
        if self.collects or self._is_due:
            return True
        self._tries += 1
        if self._tries < TRIED_EVERY:
            return False
        self._tries = 0
        return True

    def run(self, partition: Partition, node_id: int) -> AppendRun | None:
        """Returns the run of a partition; None if an append has more to do first, or its run is stale."""
        found = self._runs.get(partition)
        if found is not None:
            return found if partition.is_current(found, node_id) else None
        found = partition.begin_run(node_id)
        if found is not None:
            self._runs[partition] = found
        return found

    def wait(self, connection: Waiting, loop: asyncio.AbstractEventLoop) -> None:
        """Lets a connection wait until the loop has read all sockets."""
        self._waiting[connection] = None
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._end)

    def _end(self) -> None:
        self._is_due = False
        count = len(self._waiting)
        if count > 1:
            self.collects, self._alone = True, 0
        elif self.collects:
            self._alone += 1
            self.collects = self._alone < ALONE_MAX
        elif self._is_first:  # it may have been the last one of its turn: the next one is the first of another
            self._tries = TRIED_EVERY - 1
        self._is_first = not self._is_first
        if self.is_current:
            self.finish()
        else:
            for connection in self.put_back():
                connection.resume()

    @property
    def is_current(self) -> bool:
        """Whether nothing but these runs has changed their logs."""
        return all(partition.is_current(run) for partition, run in self._runs.items())

    def put_back(self) -> list[Waiting]:
        """Drops the runs. Returns the connections whose requests begin again."""
        self._runs.clear()
        waiting, self._waiting = list(self._waiting), {}
        for connection in waiting:
            connection.put_back()
        return waiting

    def finish(self, own: Waiting | None = None) -> Failed:
        """Writes the runs, which must be current, and sends the responses of all connections but `own`."""
        failed: Failed = {}
        runs, self._runs = self._runs, {}
        waiting, self._waiting = self._waiting, {}
        if own is not None:
            waiting.pop(own, None)
        try:
            for partition, run in runs.items():
                if run.headers:
                    try:
                        partition.append_run(run, self._now_ms())
                    except StorageError as error:
                        failed[run] = error
        except Exception as error:
            for connection in waiting:
                connection.broke(error)
            raise
        for connection in waiting:
            connection.written(failed)
        return failed
