"""Shared parts of the tests of Produce by release: releases in order, a broker, its responses and stored batches."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.broker.releases.profiles import OWN, RELEASES, profile
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import BatchHeader, Record
from ottla_testing.broker.harness import Broker, Client, Closed, only, produce, running
from ottla_testing.protocol import message_sets

# Values that the validation tests send.
HOUR: int = message_sets.HOUR
NOW: int = message_sets.NOW
SAMPLE: list[Record] = message_sets.SAMPLE
made: Callable[..., bytes] = message_sets.made
message: Callable[..., bytes] = message_sets.message
plain: Callable[..., bytes] = message_sets.plain
sealed: Callable[..., bytes] = message_sets.sealed
wrapper: Callable[..., bytes] = message_sets.wrapper

# One release of each family that differs in Produce, and more at the ends of some.
FAMILIES = tuple("0.8.2 0.9 0.10.2 0.11 2.1 2.2 2.3 2.4 2.5 2.8 3.5 3.6 3.9 4.0.0 4.3 ottla".split())
WITH_OLD = tuple(name for name in FAMILIES if not name.startswith("4"))
WITH_BATCHES = tuple(name for name in FAMILIES if not name.startswith(("0.8", "0.9", "0.10")))
WITH_BOTH = tuple(name for name in WITH_OLD if name in WITH_BATCHES)

# message.format.version by format, with the config that makes releases from 3.0 on use it.
VERSIONS_OF = {0: "0.9.0", 1: "0.10.0", 2: "0.11.0"}
BEFORE_3 = {"inter.broker.protocol.version": "2.8"}


def since(release: str, first: str) -> bool:
    """Whether the release is `first` or a later one; our own profile comes last."""
    return release == OWN or RELEASES.index(release) >= RELEASES.index(first)


def closes_for_unreadable(release: str) -> bool:
    """Whether the connection closes for a partition whose first batch cannot be read (2.1 to 2.7)."""
    return since(release, "2.1") and not since(release, "2.8")


def invalid(release: str) -> int:
    """The code of a malformed set."""
    return 87 if since(release, "2.4") else 2


def header_changed(at: int, form: str, value: int, built: bytearray | None = None) -> bytearray:
    """A v2 batch with one field replaced and a matching CRC."""
    data = bytearray(built or batch.build(SAMPLE))
    struct.pack_into(form, data, at, value)
    head = batch.read_header(data)
    batch.reseal(data, attributes=head.attributes, max_timestamp=head.max_timestamp)
    return data


def broken(data: bytes | bytearray, at: int = -1) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1
    return bytes(damaged)


def newest_format(release: str) -> int:
    return sum(since(release, first) for first in ("0.10.0", "0.11"))


class Played:
    """A broker with the profile of a release, and a client of it that reconnects after a closed connection."""

    def __init__(self, broker: Broker, folder: Path, release: str) -> None:
        self.broker = broker
        self.release = release
        self.versions = profile(release).served[0]
        self._folder = folder
        self._client: Client | None = None

    @property
    def newest(self) -> int:
        """The newest version of Produce."""
        return self.versions.last

    async def topic(self, name: str = "t", magic: int | None = None, **configs: str) -> None:
        """Creates a topic; underscores in config names become dots. With `magic` it stores that format."""
        chosen = {key.replace("_", "."): value for key, value in configs.items()}
        if magic is not None and magic != newest_format(self.release):
            chosen["message.format.version"] = VERSIONS_OF[magic]
        await self.broker.topic(name, 1, chosen)

    async def send(self, data: Any, version: int, topic: str = "t", **more: Any) -> Any:
        """The partition's response; None if the connection was closed."""
        if self._client is None:
            self._client = await self.broker.client()
        request = produce(data, topic, topic_id=self.broker.state.topics.named(topic).id, **more)
        try:
            return only(await self._client.call(request, version))
        except Closed:
            self._client.close()
            self._client = None
            return None

    async def code(self, data: Any, version: int, topic: str = "t", **more: Any) -> int | None:
        """The error code; None if the connection was closed. Checks that refused records leave nothing in the log."""
        before = self.end(topic), self.stored(topic)
        response = await self.send(data, version, topic, **more)
        if response is not None and response.error_code == 0:
            assert response.base_offset == before[0] < self.end(topic)
            return 0
        assert (self.end(topic), self.stored(topic)) == before
        if response is None:
            return None
        assert (response.base_offset, response.log_append_time_ms) == (-1, -1)
        return response.error_code

    def end(self, topic: str = "t") -> int:
        """The log end offset."""
        return self.broker.log(topic).log_end_offset

    def stored(self, topic: str = "t") -> bytes:
        """The bytes of the log's files."""
        return b"".join(path.read_bytes() for path in sorted((self._folder / f"{topic}-0").glob("*.log")))

    def entries(self, topic: str = "t") -> list[tuple[BatchHeader, list[Record]]]:
        """Headers and records in the log's files; every CRC must match."""
        data = self.stored(topic)
        found = []
        for position, header in formats.headers(data):
            assert formats.crc_matches(data, position, header)
            found.append((header, list(formats.records(data, position))))
        return found

    def last(self, topic: str = "t") -> Record:
        """The newest record, read by the log's reader."""
        data = self.broker.log(topic).read(self.end(topic) - 1, 1 << 20).records
        return list(formats.records(data, 0))[-1]

    def records(self, topic: str = "t") -> list[Record]:
        return [record for _, records in self.entries(topic) for record in records]


@contextlib.asynccontextmanager
async def playing(
    folder: Path, release: str, overrides: Mapping[str, str] | None = None, old_formats: bool = False
) -> AsyncIterator[Played]:
    """A broker with the profile of a release. With `old_formats` its topics may store v0 and v1 also from 3.0 on."""
    before_3 = BEFORE_3 if old_formats and since(release, "3.0") else {}
    async with running(folder / "data", overrides={**before_3, **(overrides or {})}, release=release) as broker:
        yield Played(broker, folder / "data", release)
