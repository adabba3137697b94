"""`ottla mirror`: the partitions of a running broker are copied byte for byte, also with interruptions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.metadata.topics import Topic
from ottla.protocol.records import batch, legacy
from ottla.storage.check.directory import Verification
from ottla.storage.errors import StorageError
from ottla.storage.follower_log import FollowerLog
from ottla.storage.partition_log import LogConfig
from ottla.tools import mirror as tool
from ottla.tools.mirror import Cannot, Progress, Source, has_gap, mirror, run_mirror
from ottla_testing.broker.harness import Broker, running

T0 = 1_700_000_000_000
GZIP = 1


def bytes_of(folder: Path, topic: str, partition: int = 0) -> bytes:
    """Returns the bytes of a partition's segments."""
    return b"".join(path.read_bytes() for path in sorted((folder / f"{topic}-{partition}").glob("*.log")))


async def mirrored(broker: Broker, target: Path, *patterns: str) -> tuple[int, list[str]]:
    """Runs the command; returns the exit code and the lines."""
    lines: list[str] = []
    compiled = [re.compile(pattern) for pattern in patterns]
    code = await run_mirror(Source(f"127.0.0.1:{broker.ports[0]}"), compiled, target, lines.append, lines.append)
    return code, lines


def write(broker: Broker, topic: str, count: int, *, partition: int = 0, size: int = 100, codec: int = 0) -> None:
    log = broker.log(topic, partition)
    for _ in range(count):
        number = log.log_end_offset
        records = [batch.Record(n, T0 + number, b"k", b"%d" % number + b"x" * size) for n in range(3)]
        log.append(batch.build(records, codec=codec), now_ms=T0)


def of(broker: Broker, name: str) -> Topic:
    topic = broker.state.topics.get(name)
    assert topic is not None
    return topic


def sound(folder: Path) -> bool:
    return [found for found in Verification(str(folder)).findings() if found.wrong] == []


async def test_all_formats_are_mirrored_and_a_later_run_continues(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with running(source, clock=ManualClock(T0), release="2.8") as broker:
        await broker.topic("new", 2, {"segment.bytes": "1048576", "cleanup.policy": "compact", "retention.ms": "5"})
        write(broker, "new", 40, codec=GZIP)
        write(broker, "new", 30, partition=1, size=20_000)
        assert len(broker.log("new", 1).segments) == 2
        for magic, version in ((0, "0.9.0"), (1, "0.10.2")):
            topic = f"v{magic}"
            await broker.topic(topic, configs={"message.format.version": version})
            for codec in (0, GZIP):
                records = [batch.Record(n, T0 if magic else -1, b"k", b"%d" % n) for n in range(5)]
                broker.log(topic).append(legacy.build(records, magic=magic, codec=codec), now_ms=T0, produce_version=2)
        await broker.topic("empty")
        code, lines = await mirrored(broker, target, "new", "v.", "empty")
        assert code == 0 and [line.split(":")[0] for line in sorted(lines)] == [
            "empty-0",
            "new-0",
            "new-1",
            "v0-0",
            "v1-0",
        ]
        for topic, partition in (("new", 0), ("new", 1), ("v0", 0), ("v1", 0)):
            assert bytes_of(target, topic, partition) == bytes_of(source, topic, partition) != b""
        assert sound(target)
        code, lines = await mirrored(broker, target, "new", "v.")
        assert code == 0 and all(" 0 batches, 0 bytes copied" in line for line in lines)
        write(broker, "new", 2)
        code, lines = await mirrored(broker, target, "new")
        assert code == 0 and "new-0: 0..126, 2 batches, " in "".join(lines)
        assert bytes_of(target, "new") == bytes_of(source, "new") and sound(target)
        topic_id = of(broker, "new").id
    async with running(target, clock=ManualClock(T0), release="2.8") as broker:
        copied = of(broker, "new")
        assert copied.id == topic_id and len(copied.partitions) == 2
        given = {name: copied.config[name] for name in ("cleanup.policy", "segment.bytes", "retention.ms")}
        assert given == {"cleanup.policy": ["compact"], "segment.bytes": 1048576, "retention.ms": -1}
        assert broker.log("new").log_end_offset == 126 and broker.log("v0").log_end_offset == 10


async def test_mirror_begins_at_the_log_start_of_the_source(tmp_path: Path) -> None:
    """Also inside of a batch; records deleted at the source since then are reported."""
    source, target = tmp_path / "source", tmp_path / "target"
    async with running(source, clock=ManualClock(T0)) as broker:
        await broker.topic("t", configs={"segment.bytes": "1048576"})
        write(broker, "t", 10)
        broker.log("t").delete_records_before(10)
        code, lines = await mirrored(broker, target, "t")
        assert (code, lines) == (0, [f"t-0: 10..30, 7 batches, {len(bytes_of(target, 't'))} bytes copied\n"])
        assert bytes_of(source, "t").endswith(bytes_of(target, "t")) and sound(target)
        write(broker, "t", 4)
        broker.log("t").delete_records_before(36)
        code, lines = await mirrored(broker, target, "t")
        assert code == 0 and "t-0: 10..42, 2 batches" in lines[0] and "6 earlier offsets were deleted" in lines[0]
    # The missing offsets are not damage.
    (target / ".kafka_cleanshutdown").unlink()
    (target / "recovery-point-offset-checkpoint").unlink()
    async with running(target, clock=ManualClock(T0)) as broker:
        log = broker.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (10, 42)
        first = next(iter(batch.records(log.read(30, 1 << 20).records)))
        assert first.offset == 36


async def test_empty_log_with_a_later_start_is_mirrored(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with running(source, clock=ManualClock(T0)) as broker:
        await broker.topic("t")
        write(broker, "t", 3)
        broker.log("t").delete_records_before(9)
        for _ in range(2):
            code, lines = await mirrored(broker, target, "t")
            assert (code, lines) == (0, ["t-0: 9..9, 0 batches, 0 bytes copied\n"])
        write(broker, "t", 1)
        assert (await mirrored(broker, target, "t"))[1][0].startswith("t-0: 9..12, 1 batches")


class Stopped(Exception):
    """Raised in place of the end of the process."""


async def test_interrupted_mirror_is_completed_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    monkeypatch.setattr(tool, "FETCH_BYTES", 2000)
    async with running(source, clock=ManualClock(T0)) as broker:
        await broker.topic("t")
        write(broker, "t", 60)
        append, left = FollowerLog.append_fetched, [3]

        def failing(log: FollowerLog, records: bytes, *, now_ms: int) -> int:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped
            return append(log, records, now_ms=now_ms)

        with monkeypatch.context() as patch:
            patch.setattr(FollowerLog, "append_fetched", failing)
            with pytest.raises(Stopped):
                await mirrored(broker, target, "t")
        assert 0 < len(bytes_of(target, "t")) < len(bytes_of(source, "t"))
        assert (await mirrored(broker, target, "t"))[0] == 0
        assert bytes_of(target, "t") == bytes_of(source, "t") and sound(target)


async def test_foreign_copy_is_left_unchanged(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with running(source, clock=ManualClock(T0)) as broker:
        await broker.topic("t")
        await broker.topic("u")
        write(broker, "t", 3)
        write(broker, "u", 3)
        assert (await mirrored(broker, target, "t", "u"))[0] == 0
    async with running(target, clock=ManualClock(T0)) as broker:  # a record is written to the copy
        write(broker, "t", 1, size=7)
        write(broker, "u", 5)
    before = bytes_of(target, "t"), bytes_of(target, "u")
    async with running(source, clock=ManualClock(T0)) as broker:
        write(broker, "t", 2, size=8)
        write(broker, "u", 1)
        code, lines = await mirrored(broker, target, "t", "u")
        assert code == 1 and len(lines) == 2
        assert "t-0: not copied beyond offset 12: t-0: at offset 11 the copy has another batch" in sorted(lines)[0]
        assert "u-0: not copied beyond offset 24: u-0: the copy ends at offset 24, the source at 12" in sorted(lines)[1]
    assert before == (bytes_of(target, "t"), bytes_of(target, "u"))


async def test_errors_that_end_the_whole_run(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    async with running(source, clock=ManualClock(T0)) as broker:
        await broker.topic("t")
        with pytest.raises(Cannot, match=r"no topic at .* matches other"):
            await mirrored(broker, target, "t", "other")
        assert not target.exists()
        with pytest.raises(StorageError, match="is in use by another broker"):
            await mirrored(broker, source, "t")
        (target / "foreign-0").mkdir(parents=True)
        (target / "foreign-0" / f"{0:020d}.log").touch()
        with pytest.raises(StorageError, match="is Apache Kafka's"):
            await mirrored(broker, target, "t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bootstrap", "127.0.0.1:1", "--topics", "t", "--data-dir", "{}"], "127.0.0.1:1"),
        (["--bootstrap", "127.0.0.1:1", "--topics", "(", "--data-dir", "{}"], "--topics ("),
        (["--bootstrap", "127.0.0.1:1", "--topics", ",", "--data-dir", "{}"], "--topics is empty"),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = mirror([argument.format(tmp_path / "d") for argument in arguments])
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr()
    assert code == 2 and printed.out == "" and message in printed.err.splitlines()[-1]
    assert not (tmp_path / "d").exists()


def test_gaps_and_progress_are_reported() -> None:
    first, second = batch.build([batch.Record(0, T0, None, b"1")]), batch.build([batch.Record(0, T0, None, b"2")])
    batch.assign(second, 0, base_offset=2, leader_epoch=0)
    wrapper = legacy.build([batch.Record(n, T0, None, b"x") for n in range(4)], magic=1, codec=GZIP)
    assert has_gap(first + second, 0) and has_gap(second, 1) and not has_gap(second, 2) and not has_gap(wrapper, 0)
    now, lines = [0.0], []
    progress = Progress(lines.append, lambda: now[0])
    for seconds in (0.5, 1.0, 1.0, 0.5, 1.4, 0.2):
        now[0] += seconds
        progress("t", 1, 1_000_000)
    assert lines == ["ottla mirror: 2.86 MiB, at t-1\n", "ottla mirror: 5.72 MiB, at t-1\n"]
    assert tool.KEPT["retention.ms"] == "-1" and LogConfig().retention_ms > 0
