"""The simulated disk: synced data is always kept, and any part of the rest may be lost, including all of it."""

from __future__ import annotations

import contextlib
import errno
import random
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.io.files import DiskFiles
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles, Step

ROUNDS = 400


def put(files: SimulatedFiles, path: str, data: bytes, *, sync: bool = False) -> None:
    file = files.open(path, create=True)
    file.write(0, data)
    if sync:
        file.sync()


def state(files: SimulatedFiles) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((path, bytes(content.live)) for path, content in files.contents.items()))


def outcomes(work: Callable[[SimulatedFiles], None], rounds: int = ROUNDS) -> set[tuple[tuple[str, bytes], ...]]:
    """Returns the states that power losses after some work leave: names and bytes, now and after the next power
    loss."""
    files = SimulatedFiles()
    work(files)
    found = set()
    for seed in range(rounds):
        fork = files.fork()
        fork.crash(random.Random(seed))
        left = state(fork)
        fork.crash(random.Random(seed + 1))
        assert state(fork) == left  # the remaining bytes are durable
        found.add(left)
    return found


def test_power_loss_keeps_synced_bytes_and_any_prefix_of_the_rest():
    def work(files: SimulatedFiles) -> None:
        put(files, "/a", b"durable", sync=True)
        files.sync_directory("/")
        files.open("/a").write(7, b"0123456789")

    found = {dict(left)["/a"] for left in outcomes(work, 3000)}
    assert all(data.startswith(b"durable") for data in found)
    assert {b"durable" + b"0123456789"[:size] for size in range(11)} <= found
    assert b"durable" + bytes(10) in found  # zeros for the missing bytes
    assert any(
        data[7:] and data[7:] != bytes(len(data) - 7) and not b"0123456789".startswith(data[7:]) for data in found
    )


def test_power_loss_loses_writes_in_any_order():
    def work(files: SimulatedFiles) -> None:
        for path in ("/a", "/b"):
            put(files, path, b"", sync=True)
        files.sync_directory("/")
        files.open("/a").write(0, b"A")
        files.open("/b").write(0, b"B")
        files.open("/a").write(1, b"C")

    found = {(dict(left)["/a"], dict(left)["/b"]) for left in outcomes(work)}
    assert {(b"", b""), (b"A", b""), (b"", b"B"), (b"AC", b"B"), (b"AC", b""), (b"\0C", b"B")} <= found


def test_write_after_a_truncation_is_never_kept_without_it():
    def work(files: SimulatedFiles) -> None:
        put(files, "/a", b"first, second, third", sync=True)
        files.sync_directory("/")
        file = files.open("/a")
        file.truncate(5)
        file.write(5, b": new")

    found = {dict(left)["/a"] for left in outcomes(work)}
    assert {b"first, second, third", b"first", b"first: new"} <= found
    assert all(b"third" not in data or data == b"first, second, third" for data in found)


def test_names_become_durable_in_order_independently_of_bytes():
    def work(files: SimulatedFiles) -> None:
        put(files, "/old", b"x", sync=True)
        files.sync_directory("/")
        put(files, "/new.tmp", b"y")
        files.replace("/new.tmp", "/new")
        files.remove("/old")

    found = outcomes(work, 2000)
    assert {tuple(name for name, _ in left) for left in found} == {
        ("/old",),
        ("/new.tmp", "/old"),
        ("/new", "/old"),
        ("/new",),
    }
    assert {dict(left)["/new"] for left in found if "/new" in dict(left)} >= {b"", b"y"}


def test_file_sync_keeps_bytes_and_folder_sync_keeps_names():
    def work(files: SimulatedFiles) -> None:
        files.make_directory("/f")
        put(files, "/f/a", b"a", sync=True)
        files.make_directory("/g")
        put(files, "/g/b", b"b", sync=True)

    assert outcomes(work) == {(), (("/f/a", b"a"),), (("/f/a", b"a"), ("/g/b", b"b"))}

    def with_sync(files: SimulatedFiles) -> None:
        work(files)
        files.sync_directory("/g")
        put(files, "/g/c", b"", sync=True)
        files.sync_directory("/f")  # not part of that one

    sure = ("/f/a", b"a"), ("/g/b", b"b")
    assert outcomes(with_sync) == {sure, (*sure, ("/g/c", b""))}


def test_folder_rename_is_atomic():
    def work(files: SimulatedFiles) -> None:
        files.make_directory("/f")
        put(files, "/f/a", b"a", sync=True)
        files.sync_directory("/f")
        files.replace("/f", "/f-delete")
        files.remove("/f-delete/a")

    assert outcomes(work) == {(("/f/a", b"a"),), (("/f-delete/a", b"a"),), ()}


def test_file_time_is_durable_with_its_bytes():
    seen = set()
    for seed in range(50):
        files = SimulatedFiles()
        put(files, "/a", b"a")
        files.set_modified_ns("/a", 7)
        files.open("/a").sync()
        files.sync_directory("/")
        files.now_ns = 9
        files.open("/a").write(0, b"b")
        assert files.modified_ns("/a") == 9
        files.crash(random.Random(seed))
        seen.add(files.modified_ns("/a"))
    assert seen == {7, 9}


def test_kill_keeps_all_writes_and_a_later_power_loss_drops_unsynced_ones():
    files = SimulatedFiles()
    files.fail_at, files.killing = 3, True
    put(files, "/a", b"a", sync=True)
    with pytest.raises(Killed):
        files.sync_directory("/")
    with pytest.raises(Killed):
        files.remove("/a")
    files.restart()
    assert state(files) == (("/a", b"a"),) == state(files.fork())
    assert {state(fork) for fork in crashed(files)} == {(), (("/a", b"a"),)}


def crashed(files: SimulatedFiles) -> list[SimulatedFiles]:
    forks = [files.fork() for _ in range(30)]
    for seed, fork in enumerate(forks):
        fork.crash(random.Random(seed))
    return forks


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("portion", [0.0, 0.5, 1.0])
def test_nth_call_fails_with_a_partial_write(number: int, portion: float):
    files = SimulatedFiles()
    put(files, "/a", b"a")
    files.fail_at, files.fail_with, files.portion = 3, number, portion
    file = files.open("/a")
    file.sync()
    with pytest.raises(OSError) as raised:
        file.write(1, b"bcde")
    assert raised.value.errno == number and bytes(file.read(0, file.size())) == b"abcde"[: 1 + int(4 * portion)]
    file.write(1, b"x")  # only that one
    looks = files.looks
    files.fail_look_at = looks + 1
    assert files.size("/a") > 1
    with pytest.raises(OSError, match="injected into read"):
        files.read_bytes("/a")
    assert files.read_bytes("/a")[:2] == b"ax"


def test_full_disk_writes_only_what_fits():
    files = SimulatedFiles()
    put(files, "/a", b"abc")
    files.capacity = 5
    with pytest.raises(OSError) as raised:
        files.open("/a").write(1, b"12345")
    assert raised.value.errno == errno.ENOSPC and files.read_bytes("/a") == b"a1234"
    files.open("/a").write(0, b"AB")
    assert files.read_bytes("/a") == b"AB234"


def test_fork_at_any_step_and_within_a_write():
    files = SimulatedFiles()
    forks = []

    def watch(step: Step) -> None:
        forks.append((step.operation, files.fork(step, 2)))

    files.on_step = watch
    put(files, "/a", b"abc", sync=True)
    files.replace("/a", "/b")
    assert [operation for operation, _ in forks] == ["create", "write", "sync", "rename"]
    assert [state(fork) for _, fork in forks] == [(), (("/a", b"ab"),), (("/a", b"abc"),), (("/a", b"abc"),)]
    put(forks[3][1], "/a", b"other")
    assert state(files) == (("/b", b"abc"),)


NAMES = st.sampled_from(["a", "b", "c"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, st.integers(0, 9), st.binary(max_size=5)),
    st.tuples(st.just("truncate"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("create"), NAMES),
    st.tuples(st.just("replace"), NAMES, NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("read"), NAMES, st.integers(0, 9), st.integers(0, 9)),
    st.tuples(st.just("sync"), NAMES),
)


def act(files: Any, root: str, operation: str, *arguments: Any) -> Any:
    path = f"{root}/{arguments[0]}"
    if operation == "create":
        files.open(path, create=True).close()
    elif operation == "replace":
        files.replace(path, f"{root}/{arguments[1]}")
    elif operation == "remove":
        files.remove(path)
    else:
        file = files.open(path)
        try:
            if operation == "read":
                return bytes(file.read(*arguments[1:])), file.size()
            return getattr(file, operation)(*arguments[1:])
        finally:
            file.close()
    return None


@given(st.lists(OPERATIONS, max_size=25))
def test_simulated_files_behave_like_a_real_disk(operations: list[tuple[Any, ...]]):
    """While nothing crashes, and after a crash for everything synced before."""
    files = SimulatedFiles()
    files.make_directory("/r")
    with tempfile.TemporaryDirectory() as folder:
        for operation, *arguments in operations:
            shown: list[Any] = []
            for disk, root in ((DiskFiles(), folder), (files, "/r")):
                try:
                    shown.append(act(disk, root, operation, *arguments))
                except OSError as error:
                    shown.append(error.errno)
            assert shown[0] == shown[1]
        names = sorted(DiskFiles().list(folder))
        assert names == sorted(files.list("/r"))
        for name in names:
            assert DiskFiles().read_bytes(f"{folder}/{name}") == files.read_bytes(f"/r/{name}")
            files.open(f"/r/{name}").sync()
    files.sync_directory("/")
    files.sync_directory("/r")
    with contextlib.suppress(OSError):
        files.remove_directory("/r")  # unless it has contents
    before = state(files)
    files.crash(random.Random(len(operations)))
    assert state(files) == before
