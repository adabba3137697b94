"""`ottla explain`: the response to a producer's next batch, with the reason, compared with brokers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.internal_records.metadata_records import ConfigRecord
from ottla.protocol.internal_records.metadata_values import encode
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.storage.producers import snapshot
from ottla.storage.producers.producer_state import CachedBatch, Producer
from ottla.tools.explain.command import explain
from ottla_testing.broker.harness import produce, records, running
from ottla_testing.broker.producer_logs import NOW, Log, Run, report, requested, runner, seven
from ottla_testing.each import each


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(explain, capsys)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


# --- the responses


def predictions(run: Run, log: Log, *more: object) -> list[tuple[str, str, int]]:
    """Returns (case, error or result, offset) of each example."""
    found = report(run, *requested(log, *more))["answers"]
    return [
        (one["case"], "accepted" if one["written"] else one["error"].replace("NONE", "copy"), one["offset"])
        for one in found
    ]


EPOCHS = [("a new epoch", "accepted", -1), ("an old epoch", "INVALID_PRODUCER_EPOCH", -1)]
COPIES = [("the newest again", "copy", 12), ("the oldest cached again", "copy", 4)]
GAP = "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize(
    ("release", "before"),
    [
        ("ottla", ("copy", 2)),
        ("1.0.1", ("DUPLICATE_SEQUENCE_NUMBER", -1)),
        ("1.1", (GAP, -1)),
        ("4.3", (GAP, -1)),
    ],
)
def test_examples_are_before_after_and_beside_the_next_batch(
    release: str, before: tuple[str, int], run: Run, log: Log
) -> None:
    assert predictions(run, seven(log), "--release", release) == [
        ("the next", "accepted", -1),
        *COPIES,
        ("one before those again", *before),
        ("one too far", GAP, -1),
        *EPOCHS,
    ]


def test_release_0_11_remembers_one_batch(run: Run, log: Log) -> None:
    assert predictions(run, seven(log), "--release", "0.11") == [
        ("the next", "accepted", -1),
        ("the newest again", "copy", 12),
        ("one before those again", GAP, -1),
        ("one too far", GAP, -1),
        *EPOCHS,
    ]


@pytest.mark.parametrize(
    ("release", "later"),
    [("ottla", "UNKNOWN_PRODUCER_ID"), ("0.11", GAP), ("2.4", "UNKNOWN_PRODUCER_ID"), ("4.3", "accepted")],
)
def test_unknown_producer(release: str, later: str, run: Run, log: Log) -> None:
    seven(log)
    wanted = ["--producer-id", 5, "--release", release]
    assert predictions(run, log, *wanted) == [("its first", "accepted", -1), ("a later one", later, -1)]
    assert predictions(run, log, *wanted, "--next-sequence", 9) == [("as given", later, -1)]
    _, out, _ = run(*requested(log, *wanted))
    assert (
        "no batches of producer 5\n" in out and f"Under the rules of {release} there is no state of producer 5." in out
    )


def test_each_response_has_a_reason(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)
    seven(log)
    _, out, _ = run(*requested(log, "--producer-id", 7))
    assert out[out.index("State of producer") :] == RESPONSES_PAGE


RESPONSES_PAGE = """\
State of producer 7 under the rules of ottla: epoch 1, last sequence 13 at offset 14
  Once offset 14 is below the log start offset, clients that compare the two treat it as unknown; it expires 1 d after \
its last timestamp or at a restart.
  5 batches of it are cached; after a restart only the newest of the snapshot and those after the snapshot may be.

BATCH                    EPOCH  SEQUENCES  RESPONSE
the next                 1      14         accepted
  It follows sequence 13, which is at offset 14.
the newest again         1      12-13      success, offset 13
  A copy of the batch at offsets 13-14. Nothing is written; the response has that batch's offset and timestamp.
the oldest cached again  1      4-5        success, offset 5
  A copy of the batch at offsets 5-6. Nothing is written; the response has that batch's offset and timestamp.
one before those again   1      2-3        success, offset 3
  A copy of the batch at offsets 3-4. It is no longer cached, but was found in the last 16777216 bytes of the log.
one too far              1      15         OUT_OF_ORDER_SEQUENCE_NUMBER (45)
  A gap: sequence 14 is missing before it. The producer treats this as lost records.
a new epoch              2      0          accepted
  A new epoch begins with sequence 0. From then on batches of epoch 1 are refused.
an old epoch             0      0          INVALID_PRODUCER_EPOCH (47)
  Epoch 0 is over: the producer has written with epoch 1 since.
"""


def test_open_transaction_refuses_a_batch_without_one(run: Run, log: Log) -> None:
    log.batch(7, 1, 0, 2, transactional=True)
    outside = ("the next, in no transaction", "INVALID_TXN_STATE", -1)
    assert predictions(run, log) == [
        ("the next", "accepted", -1),
        ("the newest again", "copy", 0),
        ("one too far", GAP, -1),
        *EPOCHS,
        outside,
    ]
    found = report(run, *requested(log))["answers"]
    assert [one["transactional"] for one in found] == [True] * 5 + [False]
    assert predictions(run, log, "--producer-id", 7, "--next-sequence", 2) == [("as given", "accepted", -1)]
    log.marker(7, 1)
    assert outside not in predictions(run, log)


@each("release", ["0.9", "0.10.2"], strided=True)
def test_releases_before_0_11_have_no_idempotent_producers(release: str, run: Run, log: Log) -> None:
    _, out, _ = run(*requested(seven(log), "--release", release))
    assert out.endswith(
        f"{release} has no idempotent producers and no message format v2: both are new in Kafka 0.11.\n"
    )
    assert {code for _, code, _ in predictions(run, log, "--release", release)} == {"UNSUPPORTED_VERSION"}


def test_topic_of_an_old_format_refuses_producers(run: Run, log: Log, tmp_path: Path) -> None:
    records = Log(tmp_path, "__cluster_metadata")
    config = ConfigRecord(resource_type=2, resource_name="t", name="message.format.version", value="0.10.2")
    records.raw(batch.build([Record(0, NOW, None, encode(config))]), 1)
    seven(log)
    assert {a for _, a, _ in predictions(run, log, "--release", "2.8")} == {"UNSUPPORTED_FOR_MESSAGE_FORMAT"}
    assert predictions(run, log)[0] == ("the next", "accepted", -1)  # the own profile always writes v2


def test_scan_reads_the_same_batches_as_the_broker(run: Run, log: Log) -> None:
    size = seven(log).path.stat().st_size // 7
    wanted = ["--producer-id", 7, "--count", 2, "--next-sequence"]
    assert predictions(run, log, *wanted, 0) == [("as given", "copy", 0)]
    filled = batch.build([Record(log.offset, NOW, None, bytes(1 << 20))], base_offset=log.offset)
    reach = 16 * 1024 * 1024
    left = reach - 6 * size  # exactly up to the second batch
    filler = batch.build([Record(log.offset, NOW, None, bytes(left - (len(filled) - (1 << 20)) - 1))], base_offset=14)
    log.raw(filler, 1)
    assert log.path.stat().st_size - size in range(reach - 3, reach + 1)
    assert predictions(run, log, *wanted, 0) == [("as given", "DUPLICATE_SEQUENCE_NUMBER", -1)]
    assert predictions(run, log, *wanted, 2) == [("as given", "copy", 2)]


RELEASES = ["ottla", "0.11", "1.0.1", "1.1", "2.3", "2.4", "2.7", "4.3"]


@each("release", RELEASES, strided=True)
async def test_predicted_responses_equal_the_brokers(
    release: str, run: Run, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """For any batches of a producer, also after the log start moved."""
    source = random.Random(release)
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client, log = await broker.client(), broker.log("t")
        next_sequence, epoch = 0, 0
        for _ in range(scaled(40)):
            if source.random() < 0.05 and log.log_end_offset > log.log_start_offset:
                log.delete_records_before(source.randint(log.log_start_offset + 1, log.log_end_offset))
            sequence = max(0, next_sequence + source.choice([0, 0, 0, 0, 0, 1, -1, -2, -3, -5, -8, -12, -20]))
            sent_epoch = max(0, epoch + source.choice([0] * 12 + [-1, 1]))
            sequence = source.choice([0, sequence]) if sent_epoch != epoch else sequence
            count = source.choice([1, 1, 1, 2, 3])
            flags = ["--producer-id", 7, "--next-sequence", sequence, "--epoch", sent_epoch, "--count", count]
            found = report(run, tmp_path, "--topic", "t", "--partition", 0, "--release", release, *flags)
            (first,) = found["answers"]
            data = records(*[b"v"] * count, producer_id=7, producer_epoch=sent_epoch, base_sequence=sequence)
            got = (await client.call(produce(data), 3)).responses[0].partition_responses[0]
            end = log.log_end_offset - count
            assert (got.error_code, got.base_offset) == (
                first["error_code"],
                end if first["written"] else first["offset"],
            )
            assert first["why"]
            if first["written"]:
                next_sequence, epoch = sequence + count, sent_epoch


# --- state outside of the log


def known(**fields: Any) -> Producer:
    return Producer(**{"epoch": 4, "batches": (), "last_offset": 3, "last_timestamp_ms": NOW, **fields})


def test_snapshot_has_producers_whose_records_are_deleted(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path, offset=20)
    log.batch(7, 0, 0)
    of = CachedBatch(5, 9, 11, 15, NOW)
    stored = {8: known(batches=(of,), last_offset=15), 9: known(batches=(of,), transaction_first_offset=11)}
    (log.folder / snapshot.file_name(21)).write_bytes(snapshot.dump(stored))
    (log.folder / snapshot.file_name(90)).write_bytes(snapshot.dump({10: known()}))  # of a log that was longer
    found = report(run, *requested(log, "--release", "4.3"))["producers"]
    assert [(one["producer_id"], one["known_from"], one["last_sequence"]) for one in found] == [
        (7, "log", 0),
        (8, "snapshot", 9),
        (9, "snapshot", 9),
    ]
    # Releases up to 2.3 keep a producer without records only for its open transaction.
    assert [one["producer_id"] for one in report(run, *requested(log, "--release", "2.3"))["producers"]] == [7, 9]
    assert [one["producer_id"] for one in report(run, *requested(log))["producers"]] == [7, 8, 9]
    _, out, _ = run(*requested(log))
    assert "from a snapshot only, transaction since offset 11" in out


def test_expiration_of_a_producer_is_shown(run: Run, log: Log) -> None:
    log.batch(7, 0, 0)

    def sentences(release: str) -> str:
        return (
            run(*requested(log, "--release", release))[1].partition("last sequence 0 at offset 0\n")[2].split("\n\n")[0]
        )

    assert sentences("ottla") == (
        "  Once offset 0 is below the log start offset, clients that compare the two treat it as unknown; "
        "it expires 1 d after its last timestamp or at a restart."
    )
    assert "It expires when offset 0 falls below the log start offset or" in sentences("2.3")
    assert "or 7 d after its last timestamp, which is at 2023-11-21 22:13:21.000." in sentences("2.3")
    assert "It expires 1 d after its last timestamp, which is at 2023-11-15 22:13:21.000." in sentences("4.3")
    assert "may at a later restart" in sentences("4.3")
