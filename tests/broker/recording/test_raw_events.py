"""The raw form of a recording: events round-trip, however the file grows and is read."""

from __future__ import annotations

import os
import tempfile

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metrics.client_ledger import ClientLibrary
from ottla.broker.recording import raw
from ottla.broker.recording.exchange import Ending, Exchange, Peer
from ottla.broker.recording.raw import Begun, Closed, Ended, Event, RawReader, ended_of, event_head

PEER = Peer(7, 1, "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 40_000, 5, ClientLibrary("PLAINTEXT", "me", None, True))


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 2)), max_size=40), st.sampled_from([1, 10, 128]))
def test_events_of_a_growing_file_are_read(steps: list[tuple[int, int]], read_bytes: int) -> None:
    """A step writes an event of some size, and reads a number of events."""
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryFile() as file:
        patched.setattr(raw, "_READ_BYTES", read_bytes)
        reader = RawReader(file.fileno())
        written: list[tuple[Event, bytes]] = []
        read: list[tuple[Event, bytes]] = []
        written_bytes = 0
        for size, reads in steps:
            event, frame = Closed(size, len(written)), bytes(size)
            data = event_head(event, size) + frame
            os.write(file.fileno(), data[:3])
            assert len(read) < len(written) or reader.read() is None
            os.write(file.fileno(), data[3:])
            written_bytes += len(data)
            written.append((event, frame))
            for _ in range(reads):
                if (found := reader.read()) is not None:
                    read.append(found)
        while (found := reader.read()) is not None:
            read.append(found)
        assert read == written
        assert reader.position == written_bytes


@given(st.integers(0, 2**60), st.sampled_from(list(Ending)), st.text(max_size=1500), st.none() | st.text(max_size=20))
def test_events_round_trip(number: int, ending: Ending, reason: str, fault: str | None) -> None:
    """Also texts with surrogates, which UTF-8 has not, and long ones, which are cut."""
    exchange = Exchange(number, PEER, 8, 9, -1, -1, -1, None, b"", 0, None, 50, 4, ending, reason, fault)

    def kept(text: str) -> str:
        return text[:1000].encode("utf-8", "replace").decode()

    ended = Ended(number, "me", None, 4, ending, kept(reason), None if fault is None else kept(fault), 50, True)
    begun = Begun(1, number, 7, msgspec.Raw(msgspec.msgpack.encode({"number": 7})), -1, 9)
    assert ended_of(exchange, True) == ended
    with tempfile.TemporaryFile() as file:
        os.write(file.fileno(), event_head(begun, 3) + b"abc" + event_head(ended, 0))
        reader = RawReader(file.fileno())
        assert reader.read() == (begun, b"abc")
        assert reader.read() == (ended, b"")
        assert reader.read() is None


def test_size_beyond_the_file_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    pread = os.pread

    def noted(fd: int, size: int, at: int) -> bytes:
        sizes.append(size)
        return pread(fd, size, at)

    monkeypatch.setattr(os, "pread", noted)
    with tempfile.TemporaryFile() as file:
        os.write(file.fileno(), b"\xff" * 5000)
        assert RawReader(file.fileno()).read() is None
    assert sizes == [1 << 20]
