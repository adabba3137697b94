"""What waits for the process that writes a recording: what goes in comes out, in its order and whole, however often the
end is passed; and how packets' sums are made of it."""

from __future__ import annotations

import errno
import os
from collections import deque
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.recording import spool
from ottla.broker.recording.packets import ones_sum
from ottla.broker.recording.spool import LENGTH, SpoolReader, SpoolWriter, write_all

SIZE = 1000


def filled(number: int, size: int) -> bytes:
    return bytes((number + one) % 251 for one in range(size))


@given(
    st.lists(st.one_of(st.integers(0, 700), st.none(), st.just(-1)), max_size=60),
    st.sampled_from([10, 128]),
    st.integers(0, 600),
)
def test_notes_come_out_as_they_went_in(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | None], chunk: int, in_memory: int
) -> None:
    """A step puts a note of so many bytes, if there is room; None has the reader told, and read; -1 has it told."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(spool, "_CHUNK_BYTES", chunk)
        patched.setattr(spool, "_MEMORY_BYTES", in_memory)
        writer = SpoolWriter(str(tmp_path_factory.getbasetemp()), SIZE)
        reader = SpoolReader(*writer.fds)
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
                writer.put((LENGTH.pack(step) + note[: step // 2], note[step // 2 :]))
                waiting.append(note)
                put += 1
            assert writer.free_bytes >= 0 and SIZE - 2 * chunk < writer.free_bytes + writer.waiting_bytes <= SIZE
            assert reader.written == writer.position
        assert not waiting
        reader.close()
        writer.close()


@pytest.mark.parametrize("in_memory", [0, 32 << 20])
def test_what_has_been_read_is_written_next(in_memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more space is taken than ever waited at once, but for the chunks that are begun or not read to their ends."""
    monkeypatch.setattr(spool, "_MEMORY_BYTES", in_memory)
    writer = SpoolWriter(str(tmp_path), 64 << 20)
    reader = SpoolReader(*writer.fds)
    note = filled(1, 600_000)
    for _ in range(60):  # 3 of them wait
        writer.put((LENGTH.pack(len(note)), note))
        if writer.waiting_bytes > 1_500_000:
            assert [bytes(one) for one in reader.notes(writer.position)] == [note] * 3
    taken = [os.fstat(fd).st_blocks * 512 for fd in writer.fds]
    assert sum(taken) <= (8 << 20) + (64 << 10) and (taken[1] == 0) == bool(in_memory)  # of 64; 36 went through
    reader.close()
    writer.close()


def test_its_file_has_no_name_and_lies_beside_the_recording(tmp_path: Path) -> None:
    writer = SpoolWriter(str(tmp_path), SIZE)
    assert os.fstat(writer.fds[1]).st_dev == tmp_path.stat().st_dev and os.fstat(writer.fds[1]).st_nlink == 0
    assert not list(tmp_path.iterdir())
    writer.close()
    elsewhere = SpoolWriter(str(tmp_path / "missing"), SIZE)  # as in a folder that takes no more files
    assert os.fstat(elsewhere.fds[1]).st_nlink == 0
    elsewhere.close()


def test_what_the_disk_does_not_take_was_not_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a part of it, and then says why it takes no more."""
    monkeypatch.setattr(spool, "_MEMORY_BYTES", 0)
    writer = SpoolWriter(str(tmp_path), SIZE)
    reader = SpoolReader(*writer.fds)
    writer.put((LENGTH.pack(3), b"one"))
    pwritev = os.pwritev

    def short(fd: int, pieces: list[bytes], position: int) -> int:
        return pwritev(fd, [b"".join(pieces)[:5]], position)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", short)
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            writer.put((LENGTH.pack(3), b"two"))
    assert writer.position == reader.written == 7
    writer.put((LENGTH.pack(5), b"three"))
    assert [bytes(note) for note in reader.notes(writer.position)] == [b"one", b"three"]
    reader.close()
    writer.close()


@given(st.lists(st.binary(max_size=9), max_size=2500), st.integers(1, 4000))
def test_pieces_are_written_whole_whatever_one_call_takes(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], taken: int
) -> None:
    """A call takes at least a byte, and at most so many."""
    pwritev, pwrite = os.pwritev, os.pwrite

    def some(fd: int, given: list[bytes], position: int) -> int:
        return pwritev(fd, [b"".join(given)[:taken]], position)

    with (tmp_path_factory.getbasetemp() / "pieces").open("w+b") as file, pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "pwritev", some)
        patched.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, data[:taken], position))
        whole = b"".join(pieces)
        assert write_all(file.fileno(), pieces, 3) == 3 + len(whole)
        assert os.pread(file.fileno(), 3 + len(whole) + 1, 0) == (b"\0\0\0" + whole if whole else b"")


@given(st.binary(max_size=40), st.sampled_from([1, 100, 409, 1024, 1700]))
def test_the_sum_of_a_packet_is_that_of_its_words(data: bytes, times: int) -> None:
    data *= times
    words = data + b"\0" if len(data) % 2 else data
    total = sum(int.from_bytes(words[at : at + 2], "big") for at in range(0, len(words), 2))
    assert ones_sum(data) == ones_sum(memoryview(data)) == total % 65535
