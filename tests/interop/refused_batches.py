"""Responses to damaged record batches: 100,000 of them, to Apache Kafka and to ours of the same release.
Some requests have a transactional id or a valid batch for another partition, whose response is compared, too.

    OTTLA_BATCHES_SEED=N        the seed (default: a new one, which is printed)
    OTTLA_BATCHES=N             how many batches for 3.9 and 4.3 each; a fifth for each of 2.8 and older
    OTTLA_BATCHES_KEEP=N        keeps Kafka's responses to so many of each release, for tests/protocol/records

Compared are error code, refused records and whether there are a base offset and an append time, and the texts. What
differs for a reason is in REASONS and is counted; everything else is a failure, and is in
out/interop/refused-batches-X.txt with the batch.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinators import find
from side_by_side import PATIENCE_SECONDS, VERSIONS, RawClient, Side, both

from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla_testing.interop.checks import OUT, ROOT, Check, Failed
from ottla_testing.protocol.mutated_batches import TOPICS, Case, cases, sound

COUNT = int(os.environ.get("OTTLA_BATCHES", "100000"))
KEEP = int(os.environ.get("OTTLA_BATCHES_KEEP", "0"))
KEPT = ROOT / "tests" / "protocol" / "records" / "golden" / "refused_batches.jsonl"
NEW = ("3.9", "4.3")
KEPT_BYTES_MAX = 700  # of one batch's records
OF_REQUEST = (53, 49, 47)  # codes that do not follow from the records alone
TOPIC_ALREADY_EXISTS = 36
TRANSACTIONS = 1  # a key type of FindCoordinator
WINDOW = 40  # requests in flight
SHOWN = 12
_TOPIC = ProduceRequest.TopicProduceData
_CONFIG = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig


class Response(NamedTuple):
    """The response for a partition, without numbers that depend on the time of day."""

    code: int | None
    """None where the connection was closed."""
    stored: bool = False
    append_time: bool = False
    log_start: bool = False
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    beside: tuple[int, bool, str | None] | None = None
    """(code, whether it was stored, text) of the sound batch beside the damaged one."""


CLOSED = Response(None)


class Reason(NamedTuple):
    """An expected difference."""

    text: str
    holds: Callable[[Case, Response, Response], bool]


def _codec(case: Case) -> int:
    return case.records[22] & 7 if len(case.records) > 22 and case.records[16] == 2 else 0


def _is(case: Case, *damage: str) -> bool:
    return any(name.startswith(damage) for name in case.damage)


_VARINTS = ("broken varint", "wide varints")
_IN_RECORD = ("record", "key length", "value length", "header", "null header", *_VARINTS)
REASONS: list[Reason] = [
    Reason(
        "compressed bytes whose damage Java's decompressors do not notice, or only after a record that is refused",
        lambda case, theirs, ours: _is(case, "compressed bytes") and -1 in (theirs.code, ours.code),
    ),
    Reason(
        "a compressed record's length that differs from its parts: Kafka does not compare them, its consumers do",
        lambda case, theirs, ours: (
            bool(_codec(case)) and _is(case, "compressed bytes", *_IN_RECORD) and ours.code == 87 and theirs.code != 2
        ),
    ),
    Reason(
        "bits of a varint above 32 or 64, which Kafka drops and other clients do not",
        # code 2 of ours: before 2.4 InvalidRecordException has the code of CorruptRecordException
        lambda case, theirs, ours: _is(case, "broken varint") and ours.code in (2, 87) and theirs.code in (0, 32, 87),
    ),
    Reason(
        "timestamps above 64 bits, which Kafka wraps and other clients do not",
        lambda case, theirs, ours: (
            _is(case, "times", "broken varint")
            and ours.code == 32
            and (theirs.code != 2 or case.topic == "compact" or len(case.damage) > 1)  # up to 2.3 for another fault
        ),
    ),
    Reason(
        "UNKNOWN_SERVER_ERROR where Kafka's own reading of records fails (IndexOutOfBounds-, BufferUnderflow-, "
        "IllegalArgument- or NullPointerException), refused here by name",
        lambda case, theirs, ours: (
            _is(case, "length", "attributes", "magic", "cut", "codec bits", "trailing bytes", "tail", *_IN_RECORD)
            and theirs.code == -1
            and ours.code in (2, 32, 87)
        ),
    ),
    Reason(
        "a v0 or v1 message whose value does not fill it, or a wrapper whose last message is cut: Kafka stores them, "
        "or refuses them for what it finds later",
        lambda case, theirs, ours: (
            _is(case, "tail", "value length", "key length", "length", "cut", "magic")
            and case.records[16] < 2
            and theirs.code in (0, 2, 32, 87)
            and ours.code in (-1, 2)
        ),
    ),
    Reason(
        "2^31 - 1 records by a compressed batch's header: Kafka up to 2.5 takes an array for them, OutOfMemoryError",
        lambda case, theirs, ours: _is(case, "count and delta") and theirs.code == -1 and ours.code in (2, 87),
    ),
    Reason(
        "more records by the header than there can be: Kafka up to 2.4 refuses the first record for its own fault",
        lambda case, theirs, ours: (
            _is(case, "count and delta")
            and _codec(case) == 0
            and (theirs.code == 32 or (theirs.code == 87 and bool(theirs.record_errors)))
            and ours.code in (2, 87)
        ),
    ),
    Reason(
        "messages converted to v2 one by one: Kafka fails at a timestamp below -1 before it comes to one without a key",
        lambda case, theirs, ours: (
            case.topic == "compact"
            and _is(case, "timestamp")
            and case.records[16] < 2
            and theirs.code == -1
            and ours.code in (2, 87)  # by release
        ),
    ),
]


def request(case: Case, now_ms: int) -> ProduceRequest:
    """Returns the Produce request of one case."""
    data = [_TOPIC.PartitionProduceData(index=0, records=case.records)]
    if case.beside:
        beside = _TOPIC.PartitionProduceData(index=1, records=sound(now_ms))
        data.insert(0 if case.beside == "before" else 1, beside)
    return ProduceRequest(
        transactional_id=case.transactional_id,
        acks=1,
        timeout_ms=10_000,
        topic_data=[_TOPIC(name=case.topic, partition_data=data)],
    )


def _timeless(text: str | None) -> str | None:
    """Returns the text without times, without a record's description and without a full stop."""
    if text is None:
        return None
    text = re.sub(r"within \[-?\d+, -?\d+\]", "within [...]", text)
    text = re.sub(r"Inner record .*? inside the compressed", "Inner record inside the compressed", text)
    text = re.sub(r"timestamp type in message .*?\. Producer", "timestamp type in message. Producer", text)
    return re.sub(r"\.(?=$|'\))", "", text)


def response_of(response: Any) -> Response:
    (topic,) = response.responses
    result, *others = sorted(topic.partition_responses, key=lambda one: one.index)
    beside = next(((one.error_code, one.base_offset >= 0, _timeless(one.error_message)) for one in others), None)
    errors = tuple((one.batch_index, _timeless(one.batch_index_error_message)) for one in result.record_errors)
    return Response(
        result.error_code,
        result.base_offset >= 0,
        result.log_append_time_ms >= 0,
        result.log_start_offset >= 0,
        _timeless(result.error_message),
        errors,
        beside,
    )


def responses_to(client: RawClient, sent: Sequence[Case], now_ms: int) -> Iterator[Response]:
    """Yields the responses in order. A case for which the broker closes the connection is CLOSED."""
    position, size = 0, WINDOW
    while position < len(sent):
        part = sent[position : position + size]
        size = WINDOW
        for found in client.calls([(request(case, now_ms), case.version) for case in part]):
            if found is not None:
                position += 1
                yield response_of(found)
            elif len(part) > 1:  # a reset for a later request may have lost the response: the case is sent again, alone
                size = 1
            else:
                position += 1
                yield CLOSED


def _create_topics(side: Side) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=2,
            replication_factor=1,
            assignments=[],
            configs=[_CONFIG(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in TOPICS.items()
    ]
    end = time.monotonic() + PATIENCE_SECONDS
    while bad := [
        one
        for one in side.client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 3).topics
        if one.error_code not in (0, TOPIC_ALREADY_EXISTS)
    ]:
        if time.monotonic() > end:  # until then a controller may not have seen its broker
            raise Failed(f"{side.name}: {bad}")
        time.sleep(0.2)


def _explained(case: Case, theirs: Response, ours: Response) -> str | None:
    return next((reason.text for reason in REASONS if reason.holds(case, theirs, ours)), None)


def _keep(release: str, now_ms: int, responded: Sequence[tuple[Case, Response, Response]]) -> None:
    """Writes the responses that ours shares to small batches, in place of those of that release."""
    kept = (
        [line for line in KEPT.read_text().splitlines() if json.loads(line)["release"] != release]
        if KEPT.exists()
        else []
    )
    alike = (one for one in responded if one[1] == one[2] and len(one[0].records) <= KEPT_BYTES_MAX)
    for case, theirs, _ in itertools.islice((one for one in alike if one[1].code not in OF_REQUEST), KEEP):
        reply = {
            "release": release,
            "topic": case.topic,
            "version": case.version,
            "now_ms": now_ms,
            "code": theirs.code,
            "refused": [index for index, _ in theirs.record_errors],
            "records": base64.b64encode(case.records).decode(),
        }
        kept.append(json.dumps(reply))
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("\n".join(kept) + "\n")


def run(release: str) -> str:
    """Sends all cases to both sides."""
    count = COUNT if release in NEW else COUNT // 5
    seed = int(os.environ.get("OTTLA_BATCHES_SEED", "0")) or secrets.randbits(32)
    now_ms = int(time.time() * 1000)
    sent = cases(seed, count, now_ms, old=release != "4.3")
    with both(release, authorizer=False) as pair:
        for side in (pair.theirs, pair.ours):
            _create_topics(side)
            find(side, TRANSACTIONS)  # without a coordinator batches with a transactional id are refused
        time.sleep(1)
        theirs, ours = (responses_to(side.client, sent, now_ms) for side in (pair.theirs, pair.ours))
        found = list(zip(sent, theirs, ours, strict=True))
    if KEEP:
        _keep(release, now_ms, found)
    explained: Counter[str] = Counter()
    codes: Counter[int | None] = Counter()
    failures = []
    for case, theirs, ours in found:
        codes[theirs.code] += 1
        if theirs == ours:
            continue
        if text := _explained(case, theirs, ours):
            explained[text] += 1
        else:
            failures.append((case, theirs, ours))
    if failures:
        path = OUT / f"refused-batches-{release}.txt"
        lines = [
            f"{case[:2]} {case.damage}\n  theirs {theirs}\n  ours   {ours}\n  {case.records.hex()[:3000]}"
            for case, theirs, ours in failures
        ]
        path.write_text("\n".join(lines) + "\n")
        kinds = Counter(
            (case.damage if len(case.damage) == 1 else "several", theirs.code, ours.code)
            for case, theirs, ours in failures
        )
        raise Failed(f"seed {seed}: {len(failures)} of {count} differ, see {path}: {kinds.most_common(SHOWN)}")
    result = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    reasons = "; ".join(f"{count} for {text}" for text, count in explained.most_common())
    return f"{count} batches, seed {seed}: Kafka's codes {result}; other responses: {reasons or 'none'}"


CHECKS = [
    Check(f"damaged batches to Kafka {version}", lambda release=release: run(release))
    for release, version in VERSIONS.items()
]
