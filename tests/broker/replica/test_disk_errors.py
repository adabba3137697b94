"""Disk errors in every operation: clients get an error code for it, or are served.

Each request that uses a log or the metadata is sent to a broker whose n-th disk operation fails, for every n until the
request needs no more of them: with EIO, and with passing errors. No stack trace, no hang, no closed connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import random
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import StartupError
from ottla.broker.logs import get_logger
from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC
from ottla.broker.network import server
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.records import formats, legacy
from ottla.protocol.records.batch import Record
from ottla.storage.errors import StorageError
from ottla_testing.broker.harness import Broker, create_topics, fetch, options, produce, records, values
from ottla_testing.broker.idempotence import numbered
from ottla_testing.each import each
from ottla_testing.storage.failing_files import CHANGES, FailingFiles

GROUP = "g"
# Segments are as short as possible, and each batch has an index entry, so that much is read from the disk.
OVERRIDES = {
    "log.index.size.max.bytes": "48",
    "log.index.interval.bytes": "0",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.partition.verification.enable": "false",
}
DISK_CALLS = CHANGES | {"open", "read", "read_bytes", "size", "list", "modified"}
OPENINGS = frozenset(("open", "create", "read_bytes", "list", "syncdir"))
GROWTH = frozenset(("create", "write", "mkdir"))


class Operation(NamedTuple):
    """A request, and the path of fields and positions to its error code.

    `mapped` are the codes of the error; `whole` marks requests that need the metadata log, whose failure ends the
    broker.
    """

    request: Callable[[], Any]
    version: int
    path: str
    mapped: tuple[int, ...] = (56,)
    whole: bool = False
    reads: bool = False  # needs no write, so a full disk does not matter


def _partition(cls: Any, topic: str, group: str, partition: str, /, **fields: Any) -> Any:
    of = getattr(cls, group)
    return of(**{topic: "t", "partitions": [getattr(of, partition)(**fields)]})


def _config(cls: Any, config: str, **more: Any) -> Any:
    resource = next(getattr(cls, name) for name in ("AlterConfigsResource",))
    entry = getattr(resource, config)(name="retention.ms", value="1000", **more)
    return cls(
        resources=[resource(resource_type=2, resource_name="t", configs=[entry])],
        validate_only=False,
    )


def _offsets(timestamp: int, **more: Any) -> ListOffsetsRequest:
    topic = _partition(
        ListOffsetsRequest, "name", "ListOffsetsTopic", "ListOffsetsPartition", partition_index=0, timestamp=timestamp
    )
    for name, value in more.items():
        setattr(topic.partitions[0], name, value)
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def _old_messages() -> bytes:
    return bytes(legacy.build([Record(n, 1, None, b"o" * 100, ()) for n in range(3)], magic=1))


PARTITION = "topics.0.partitions.0.error_code"
PRODUCED = "responses.0.partition_responses.0.error_code"
FETCHED = "responses.0.partitions.0.error_code"

OPERATIONS = {
    "produce": Operation(lambda: produce(records(b"v" * 10)), 9, PRODUCED),
    "produce old messages": Operation(lambda: produce(_old_messages()), 2, PRODUCED, (6,)),
    "produce idempotently": Operation(lambda: produce(numbered(20)), 9, PRODUCED),
    "produce a late copy": Operation(lambda: produce(numbered(0)), 9, PRODUCED, reads=True),
    "produce in turns": Operation(lambda: produce(records(b"w" * 700_000)), 9, PRODUCED),
    "fetch the first": Operation(lambda: fetch(("t", 0, 0)), 11, FETCHED, reads=True),
    "fetch in the midst": Operation(lambda: fetch(("t", 0, 9), partition_max_bytes=150), 11, FETCHED, reads=True),
    "fetch the end": Operation(lambda: fetch(("t", 0, 21)), 11, FETCHED, reads=True),
    "fetch and convert": Operation(lambda: fetch(("t", 0, 0)), 3, FETCHED, (6,), reads=True),
    "fetch as a follower": Operation(
        lambda: fetch(("t", 0, 3), partition_fields={"last_fetched_epoch": 0}), 12, FETCHED, reads=True
    ),
    "offset of a time": Operation(lambda: _offsets(1_700_000_000_008), 7, PARTITION, reads=True),
    "offset of the latest time": Operation(lambda: _offsets(-3), 7, PARTITION, reads=True),
    "offsets before a time": Operation(lambda: _offsets(1, max_num_offsets=5), 0, PARTITION, reads=True),
    "delete records": Operation(
        lambda: DeleteRecordsRequest(
            timeout_ms=1,
            topics=[
                _partition(
                    DeleteRecordsRequest,
                    "name",
                    "DeleteRecordsTopic",
                    "DeleteRecordsPartition",
                    partition_index=0,
                    offset=3,
                )
            ],
        ),
        1,
        PARTITION,
    ),
    "describe producers": Operation(
        lambda: DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])]
        ),
        0,
        PARTITION,
        reads=True,
    ),
    "create topics": Operation(lambda: create_topics("new", partitions=3), 7, "topics.0.error_code", whole=True),
    "create by metadata": Operation(
        lambda: MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
        ),
        9,
        "topics.0.error_code",
        whole=True,
    ),
    "create partitions": Operation(
        lambda: CreatePartitionsRequest(
            timeout_ms=1,
            validate_only=False,
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=4, assignments=None)],
        ),
        1,
        "results.0.error_code",
        whole=True,
    ),
    "delete topics": Operation(
        lambda: DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 4, "responses.0.error_code", whole=True
    ),
    "alter configs": Operation(
        lambda: _config(AlterConfigsRequest, "AlterableConfig"), 1, "responses.0.error_code", whole=True
    ),
    "alter configs by increments": Operation(
        lambda: _config(IncrementalAlterConfigsRequest, "AlterableConfig", config_operation=0),
        1,
        "responses.0.error_code",
        whole=True,
    ),
    "producer id": Operation(
        lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 1, "error_code", whole=True
    ),
    "commit offsets": Operation(
        lambda: OffsetCommitRequest(
            group_id=GROUP,
            topics=[
                _partition(
                    OffsetCommitRequest,
                    "name",
                    "OffsetCommitRequestTopic",
                    "OffsetCommitRequestPartition",
                    partition_index=0,
                    committed_offset=5,
                    committed_metadata="",
                )
            ],
        ),
        2,
        PARTITION,
        (16,),
    ),
    "commit offsets in a transaction": Operation(
        lambda: TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=GROUP,
            producer_id=5,
            producer_epoch=0,
            topics=[
                _partition(
                    TxnOffsetCommitRequest,
                    "name",
                    "TxnOffsetCommitRequestTopic",
                    "TxnOffsetCommitRequestPartition",
                    partition_index=0,
                    committed_offset=5,
                    committed_metadata="",
                )
            ],
        ),
        3,
        PARTITION,
        (16,),
    ),
    "delete offsets": Operation(
        lambda: OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                _partition(
                    OffsetDeleteRequest,
                    "name",
                    "OffsetDeleteRequestTopic",
                    "OffsetDeleteRequestPartition",
                    partition_index=0,
                )
            ],
        ),
        0,
        "error_code",
        (16,),
    ),
    "delete a group": Operation(lambda: DeleteGroupsRequest(groups_names=[GROUP]), 1, "results.0.error_code", (16,)),
}


def code_in(response: Any, path: str) -> int:
    for step in path.split("."):
        response = response[int(step)] if step.isdigit() else getattr(response, step)
    return response


@contextlib.asynccontextmanager
async def running(files: FailingFiles, folder: Path) -> AsyncIterator[Broker]:
    clock = ManualClock()
    requested = options([folder / "one", folder / "two"], OVERRIDES)
    started = await server.start(requested, asyncio.get_running_loop(), clock, files=files)
    broker = Broker(started, clock)
    try:
        yield broker
    finally:
        files.repair()
        with contextlib.suppress(Exception):
            await broker.stop()


async def fill(folder: Path) -> None:
    async with running(FailingFiles(), folder) as broker:
        broker.state.topics.create("t", 1, {}, broker.clock.now_ms())
        broker.state.topics.create("filler", 1, {}, broker.clock.now_ms())
        broker.state.internal_topic(GROUP_OFFSETS_TOPIC, broker.clock.now_ms())
        client = await broker.client()
        for sequence in range(0, 20, 2):
            assert code_in(await client.call(produce(numbered(sequence)), 9), PRODUCED) == 0
        assert code_in(await client.call(produce(_old_messages()), 2), PRODUCED) == 0
        assert code_in(await client.call(OPERATIONS["commit offsets"].request(), 2), PARTITION) == 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed broker's directories: the metadata in one, topic t and the groups in two. t has 20 numbered records of
    one producer, then old ones, in several segments.
    """
    folder = tmp_path_factory.mktemp("stored")
    asyncio.run(fill(folder))
    assert (folder / "two" / "t-0").exists() and (folder / "one" / "__cluster_metadata-0").exists()
    assert (folder / "two" / f"{GROUP_OFFSETS_TOPIC}-0").exists()
    assert len(list((folder / "two" / "t-0").glob("*.log"))) > 2
    return folder


class Trouble:
    """Fails the n-th operation of these kinds below one folder, once armed."""

    def __init__(self, files: FailingFiles, folder: Path, code: int, operations: frozenset[str]) -> None:
        self._files, self._top, self._code, self._operations = files, str(folder) + os.sep, code, operations
        self.failed: str | None = None

    def arm(self, nth: int, count: int = 1) -> None:
        """Fails `count` operations from the n-th on."""
        seen = itertools.count()

        def fails(operation: str, path: str) -> int:
            if operation not in self._operations or not (path + os.sep).startswith(self._top):
                return 0
            if not nth <= next(seen) < nth + count:
                return 0
            self.failed = self.failed or f"{operation} {path.removeprefix(self._top)}"
            return self._code

        self._files.fails = fails


class Outcome(NamedTuple):
    """The failed operation, the response's code, the code of the same request after the disk works again, and whether a
    directory was lost.
    """

    failed: str | None
    responded: int
    again: int
    lost: bool


async def one_failure(
    stored: Path, folder: Path, requested: Operation, code: int, operations: frozenset[str], nth: int
) -> Outcome:
    files = FailingFiles()
    shutil.copytree(stored, folder)
    async with running(files, folder) as broker:
        client = await broker.client()
        trouble = Trouble(files, folder if requested.whole else folder / "two", code, operations)
        with structlog.testing.capture_logs() as events:
            trouble.arm(nth)
            responded = code_in(await client.call(requested.request(), requested.version), requested.path)
            files.repair()
            again = code_in(await client.call(requested.request(), requested.version), requested.path)
        assert not [event for event in events if event.get("exc_info")], (trouble.failed, events)
        lost = broker.state.logs.online != broker.state.logs.directories
    shutil.rmtree(folder)
    return Outcome(trouble.failed, responded, again, lost)


def numbers(stride: int, seen: set[int], wanted: tuple[int, ...]) -> Iterator[int]:
    """The numbers of the failing operations: one after the other until all wanted codes are seen, then in strides."""
    nth = 0
    while nth < 200:
        yield nth
        nth += 1 if not seen >= set(wanted) else random.randint(1, 2 * stride - 1)
    raise AssertionError("the request needs ever more operations")


@each("name", OPERATIONS)
async def test_any_failing_operation_is_in_the_response(name: str, stored: Path, tmp_path: Path, stride: int) -> None:
    requested = OPERATIONS[name]
    get_logger()
    seen: set[int] = set()
    for nth in numbers(stride, seen, requested.mapped):
        failed, responded, _, lost = await one_failure(
            stored, tmp_path / str(nth), requested, errno.EIO, DISK_CALLS, nth
        )
        if failed is None:
            assert (responded, lost) == (0, False)
            break
        assert responded in (0, *requested.mapped), failed
        assert lost or responded == 0, failed  # it may have been only a hint
        seen.add(responded)
    assert seen >= set(requested.mapped), seen


@each(("code", "operations"), [(errno.ENOSPC, GROWTH), (errno.EMFILE, OPENINGS)])
@each("name", OPERATIONS)
async def test_passing_error_leaves_no_trace(
    name: str, code: int, operations: frozenset[str], stored: Path, tmp_path: Path, stride: int
) -> None:
    """The same request succeeds later: nothing is offline, and no partial state is in the way."""
    requested = OPERATIONS[name]
    get_logger()
    seen: set[int] = set()
    for nth in numbers(stride, seen, ()):
        failed, responded, again, lost = await one_failure(
            stored, tmp_path / str(nth), requested, code, operations, nth
        )
        if failed is None:
            break
        assert responded in (0, *requested.mapped), failed
        assert not lost, failed
        seen.add(responded)
        done = responded == 0 and name in ("create topics", "delete topics", "create partitions", "delete a group")
        assert again == 0 or done, (failed, responded, again)
    assert seen or requested.reads or code == errno.EMFILE


OFFLINE = {
    **{name: requested for name, requested in OPERATIONS.items() if not requested.whole},
    "end of an epoch": Operation(
        lambda: OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                _partition(
                    OffsetForLeaderEpochRequest,
                    "topic",
                    "OffsetForLeaderTopic",
                    "OffsetForLeaderPartition",
                    partition=0,
                    current_leader_epoch=7,
                    leader_epoch=0,
                )
            ],
        ),
        3,
        PARTITION,
    ),
    "fetch with another epoch": Operation(
        lambda: fetch(("t", 0, 0), partition_fields={"current_leader_epoch": 7}), 11, FETCHED
    ),
    "produce as admin": Operation(lambda: produce(records(b"x")), 3, PRODUCED, (6,)),
}


@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_offline_partition_returns_its_error(when: str, stored: Path, tmp_path: Path) -> None:
    """Also long after the error, and for requests that need no disk."""
    folder = shutil.copytree(stored, tmp_path / "data")
    files = FailingFiles()
    if when == "at the start":
        files.break_down(folder / "two")
    async with running(files, folder) as broker:
        client = await broker.client()
        if when == "later":
            broker.state.logs.directories[1].fail("pulled out")
            await broker.settle()
        with structlog.testing.capture_logs() as events:
            for name, requested in OFFLINE.items():
                response = await client.call(requested.request(), requested.version)
                assert code_in(response, requested.path) in requested.mapped, name
            broker.clock.advance(3_600_000)
        assert not [event for event in events if event.get("exc_info")], events
        assert not broker.state.failed.done()


# Starting and stopping


async def contents(broker: Broker) -> list[bytes | None]:
    """All records of topic t."""
    found: list[bytes | None] = []
    log = broker.log("t")
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).records
        found += values(data)
        offset = [header.next_offset for _, header in formats.headers(data)][-1]
    return found


@pytest.mark.parametrize("after", ["a stop", "a kill"])
@pytest.mark.parametrize("where", ["one", "two"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_any_failing_operation_at_the_start(
    code: int, where: str, after: str, stored: Path, tmp_path: Path, stride: int
) -> None:
    """The start is refused with one line, or continues without that directory; the next start has everything."""
    get_logger()
    expected: list[bytes | None] | None = None
    outcomes = set()
    operations = DISK_CALLS | {"lock"} if code == errno.EIO else GROWTH
    for nth in itertools.count(random.randrange(stride), stride):
        files, folder = FailingFiles(), shutil.copytree(stored, tmp_path / str(nth))
        if after == "a kill":
            for marker in folder.glob("*/.kafka_cleanshutdown"):
                marker.unlink()
        trouble = Trouble(files, folder / where, code, operations)
        trouble.arm(nth)
        try:
            with structlog.testing.capture_logs() as events:
                async with running(files, folder) as broker:
                    online = [Path(log_dir.path).name for log_dir in broker.state.logs.online]
                    outcomes.add(",".join(online))
                    assert where == "two" or online == ["one", "two"]
            assert not [event for event in events if event.get("exc_info")], (trouble.failed, events)
        except StartupError as error:
            assert where == "one" or code == errno.ENOSPC, trouble.failed
            assert "\n" not in str(error)
            outcomes.add("refused")
        files.repair()
        async with running(files, folder) as broker:
            found = await contents(broker)
            expected = expected or found
            assert found == expected, trouble.failed
            assert broker.state.groups.offsets(GROUP)
        shutil.rmtree(folder)
        if trouble.failed is None:
            break
    assert "one,two" in outcomes
    if code == errno.EIO:
        assert outcomes == {"one,two", "refused" if where == "one" else "one"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
async def test_any_failing_operation_at_the_stop(code: int, stored: Path, tmp_path: Path, stride: int) -> None:
    """The stop ends, and reports unwritten data; the next start has everything."""
    get_logger()
    refused = 0
    for nth in itertools.count(random.randrange(stride), stride):
        files, folder = FailingFiles(), shutil.copytree(stored, tmp_path / str(nth))
        trouble = Trouble(files, folder, code, DISK_CALLS if code == errno.EIO else GROWTH)
        requested = options([folder / "one", folder / "two"], OVERRIDES)
        started = await server.start(requested, asyncio.get_running_loop(), ManualClock(), files=files)
        broker = Broker(started, ManualClock())
        client = await broker.client()
        assert code_in(await client.call(produce(numbered(20)), 9), PRODUCED) == 0
        trouble.arm(nth)
        try:
            await broker.stop()
        except StorageError:
            refused += 1
            lost = folder / (trouble.failed or "/").split("/")[0]
            assert not (lost / ".kafka_cleanshutdown").exists()
        files.repair()
        async with running(files, folder) as again:
            assert (await contents(again))[-2:] == [b"20", b"21"], trouble.failed
        shutil.rmtree(folder)
        if trouble.failed is None:
            break
    assert refused
