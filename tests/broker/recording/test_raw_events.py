"""The raw form of a recording: events come back as they were written, however the file grows and is read."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metrics.client_ledger import Origin
from ottla.broker.recording import raw_events, raw_files
from ottla.broker.recording.exchange import Ending, Exchange, Peer
from ottla.broker.recording.raw_events import RawReader, begun_event, ended_event, json_event, read_begun, read_ended
from ottla.broker.recording.raw_files import Queue

PEER = Peer(7, 1, "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 40_000, 5, Origin("PLAINTEXT", None, None, False))


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 2)), max_size=40), st.sampled_from([1, 10, 128]))
def test_events_of_a_growing_file_come_back(steps: list[tuple[int, int]], read_bytes: int) -> None:
    """A step writes an event of so many bytes, and reads as many as it says."""
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryFile() as file:
        patched.setattr(raw_events, "_READ_BYTES", read_bytes)
        reader = RawReader(file.fileno())
        written: list[bytes] = []
        read: list[bytes] = []
        for size, reads in steps:
            event = json_event(raw_events.DROPPED, "x" * size)
            os.write(file.fileno(), event[:3])
            assert len(read) < len(written) or reader.read() is None
            os.write(file.fileno(), event[3:])
            written.append(event)
            for _ in range(reads):
                if (found := reader.read()) is not None:
                    read.append(found)
        while (found := reader.read()) is not None:
            read.append(found)
        assert read == [event[4:] for event in written]
        assert reader.position == sum(map(len, written))


@given(st.lists(st.one_of(st.integers(0, 40), st.just(None), st.just(-1)), max_size=60))
def test_queue_gives_back_what_was_put_file_by_file(steps: list[int | None]) -> None:
    """A step puts so many bytes; None takes all, -1 begins another file."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(raw_files, "_CHUNK_BYTES", 16)
        patched.setattr(raw_files, "_FREE_CHUNKS", 2)
        queue = Queue()
        put, taken = [b""], [b""]
        for number, step in enumerate([*steps, None]):
            if step is None:
                for data, begins_file in queue.take():
                    taken += [b""] * begins_file
                    taken[-1] += data
                assert queue.waiting_bytes == 0
            elif step == -1:
                queue.turn()
                put.append(b"")
            else:
                data = bytes((number + one) % 251 for one in range(step))
                queue.put(data)
                put[-1] += data
        assert taken == put and queue.put_bytes == sum(map(len, put))


@given(
    st.binary(max_size=60),
    st.none() | st.binary(max_size=40),
    st.sampled_from(list(Ending)),
    st.text(max_size=20),
    st.none() | st.text(min_size=1, max_size=20),
)
def test_exchanges_come_back(
    request: bytes, response: bytes | None, ending: Ending, reason: str, fault: str | None
) -> None:
    exchange = Exchange(3, PEER, 8, 9, -1, -1, -1, None, request, len(request))
    event = begun_event(exchange, len(request)) + request
    begun = read_begun(event[4:], {7: PEER})
    assert (begun.number, begun.peer, begun.time_ms, begun.begun_ns) == (3, PEER, 8, 9)
    assert (begun.request, begun.request_bytes, begun.api_key) == (request, len(request), -1)
    exchange.ending, exchange.reason, exchange.fault, exchange.duration_ns = ending, reason, fault, 4
    exchange.response, exchange.response_bytes = response, 50
    size = None if response is None else len(response)
    ended = read_ended((ended_event(exchange, size) + (response or b""))[4:])
    text = reason.encode("utf-8", "replace").decode()
    assert ended == (3, 4, 50, response, ending, text, fault and fault.encode("utf-8", "replace").decode())
