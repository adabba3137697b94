"""Memory that a broker and the process that writes its recording share: what goes in comes out, in its order and whole,
however often its end is passed; and how packets' sums are made of it."""

from __future__ import annotations

import os
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.recording import shared_buffer
from ottla.broker.recording.packets import ones_sum
from ottla.broker.recording.shared_buffer import LENGTH, SharedReader, SharedWriter

SIZE = 1000


def filled(number: int, size: int) -> bytes:
    return bytes((number + one) % 251 for one in range(size))


@given(st.lists(st.one_of(st.integers(0, 700), st.none(), st.just(-1)), max_size=60), st.sampled_from([0, 300, 5000]))
def test_notes_come_out_as_they_went_in(steps: list[int | None], kept: int) -> None:
    """A step puts a note of so many bytes, if there is room; None has the reader told, and read; -1 has it told."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_buffer, "_KEPT_BYTES", kept)
        writer = SharedWriter(SIZE)
        reader = SharedReader(writer.fd)
        waiting: deque[bytes] = deque()
        told: tuple[int, int] = 0, 0  # position, notes
        put = 0
        for number, step in enumerate([*steps, -1, None]):
            if step == -1:
                told = writer.position, put
            elif step is None:
                for note in reader.notes(told[0]):
                    assert bytes(note) == waiting.popleft()
                assert len(waiting) == put - told[1]
            elif LENGTH.size + step <= writer.free_bytes:
                note = filled(number, step)
                writer.put(LENGTH.pack(step) + note[: step // 2], note[step // 2 :])
                waiting.append(note)
                put += 1
            assert 0 <= writer.free_bytes <= SIZE and writer.free_bytes + writer.waiting_bytes == SIZE
            assert reader.written == writer.position
            if not waiting:
                assert writer.free_bytes == SIZE
        assert not waiting
        reader.close()
        writer.close()


def test_what_has_been_read_is_the_beginning_again() -> None:
    writer = SharedWriter(8 << 20)
    reader = SharedReader(writer.fd)
    note = filled(1, 600_000)
    for _ in range(40):  # with pauses, in which it is read
        writer.put(LENGTH.pack(len(note)), note)
        assert [bytes(one) for one in reader.notes(writer.position)] == [note]
    assert os.fstat(writer.fd).st_blocks * 512 < 3 << 20  # of 8, as no more was ever needed
    reader.close()
    writer.close()


@given(st.binary(max_size=40), st.sampled_from([1, 100, 409, 1024, 1700]))
def test_the_sum_of_a_packet_is_that_of_its_words(data: bytes, times: int) -> None:
    data *= times
    words = data + b"\0" if len(data) % 2 else data
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    assert ones_sum(data) == ones_sum(memoryview(data)) == total % 65535
