"""Shared parts of the idempotence tests: numbered batches, a broker with a profile that is stopped or killed, and
sends.

Values contain the sequence, timestamps the sequence and the count, so that every batch is identifiable.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.broker.clock import ManualClock
from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch
from ottla_testing.broker.harness import Broker, Client, only, produce, records, running

T0 = 1_700_000_000_000
MAX = 2**31 - 1


class Sent(NamedTuple):
    """A partition's response: error, base offset, log append time, log start offset (-1 below Produce v5)."""

    error: int
    base_offset: int
    time_ms: int
    log_start: int


def batch_time(sequence: int, count: int) -> int:
    """The largest timestamp of the batch."""
    return T0 + sequence % 1000 + count - 1


def numbered(
    sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = 9, time_ms: int | None = None
) -> bytes:
    """A batch of an idempotent producer; its records are 1 ms apart unless a time is given."""
    first = batch_time(sequence, 1) if time_ms is None else time_ms
    data = records(
        *[b"%d" % ((sequence + n) % (MAX + 1)) for n in range(count)],
        timestamp=first,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    if time_ms is not None or count == 1:
        return bytes(data)
    rows = [row._replace(timestamp=first + n) for n, row in enumerate(batch.records(data))]
    return bytes(
        batch.build(rows, batch.BatchFields(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
    )


class Writer:
    """A broker, and a client that writes to partition 0 of topics."""

    def __init__(self, broker: Broker, client: Client, folder: Path) -> None:
        self.broker = broker
        self.client = client
        self.folder = folder
        self.version = min(broker.state.profile.served[0].last, 12)

    async def send(self, data: bytes, topic: str = "t", version: int | None = None) -> Sent:
        version = self.version if version is None else version
        response = only(await self.client.call(produce(data, topic), version))
        return Sent(response.error_code, response.base_offset, response.log_append_time_ms, response.log_start_offset)

    async def write(self, *runs: tuple[int, int], topic: str = "t", **more: int) -> None:
        """Writes batches of (first sequence, count); all must succeed."""
        for sequence, count in runs:
            end = self.end(topic)
            assert (await self.send(numbered(sequence, count, **more), topic))[:2] == (0, end), (sequence, count)

    def end(self, topic: str = "t") -> int:
        return self.broker.log(topic).log_end_offset


@contextlib.asynccontextmanager
async def writing(
    folder: Path,
    release: str = "ottla",
    overrides: Mapping[str, str] | None = None,
    clock: ManualClock | None = None,
) -> AsyncIterator[Writer]:
    """A broker with the profile of a release over a folder."""
    async with running(folder, release=release, overrides=overrides, clock=clock) as broker:
        yield Writer(broker, await broker.client(), folder)


def killed(folder: Path) -> Path:
    """A copy of a running broker's folder, as a kill would leave it now; the broker may end normally."""
    copy = folder.with_name(folder.name + "-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    assert not (copy / ".kafka_cleanshutdown").exists()
    return copy


def files(folder: Path, *suffixes: str) -> list[Path]:
    """The files of all partitions with these suffixes."""
    return sorted(path for suffix in suffixes for path in folder.glob(f"*-0/*{suffix}"))


def remove(folder: Path, *suffixes: str) -> None:
    found = files(folder, *suffixes)
    assert found
    for path in found:
        path.unlink()


def damage(folder: Path) -> None:
    """Flips a bit in every snapshot: in the version, the CRC, the count or an entry."""
    for number, path in enumerate(files(folder, ".snapshot")):
        data = bytearray(path.read_bytes())
        data[(1, 3, 9, len(data) - 1)[number % 4]] ^= 1
        path.write_bytes(data)


async def restarted(
    folder: Path, release: str, how: str, before: Callable[[Writer], Any], **more: Any
) -> tuple[Path, ManualClock]:
    """Runs `before` with a broker and ends it as requested. Returns the folder for the next broker."""
    clock = ManualClock(T0 + 5000)
    async with writing(folder, release, clock=clock, **more) as writer:
        await before(writer)
        copy = killed(folder) if "killed" in how else None
    chosen = copy or folder
    if "no snapshots" in how:
        remove(chosen, ".snapshot")
    elif "damaged snapshots" in how:
        damage(chosen)
    if "no indexes" in how:
        remove(chosen, ".index", ".timeindex")
    return chosen, clock


def produce_versions(release: str) -> list[int]:
    """The tested versions with batches: without and with a log start offset."""
    last = min(profile(release).served[0].last, 12)
    return sorted({3, min(5, last), last})
