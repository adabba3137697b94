"""What a broker answers to damaged record batches: 100,000 of them, to Apache Kafka and to ours of the same release.

    OTTLA_BATCHES_SEED=N        the seed (default: a new one, which is printed)
    OTTLA_BATCHES=N             how many batches for each release
    OTTLA_BATCHES_KEEP=N        keeps Kafka's answers to so many of each release, for tests/protocol/records

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

from checks import OUT, ROOT, Check, Failed
from mutated_batches import TOPICS, Case, cases  # type: ignore[import-not-found]
from side_by_side import RELEASES, RawClient, Side, both

from ottla.protocol.messages.create_topics import CreateTopicsRequest
from ottla.protocol.messages.produce import ProduceRequest

COUNT = int(os.environ.get("OTTLA_BATCHES", "100000"))
KEEP = int(os.environ.get("OTTLA_BATCHES_KEEP", "0"))
KEPT = ROOT / "tests" / "protocol" / "records" / "golden" / "refused_batches.jsonl"
KEPT_BYTES_MAX = 700  # of one batch's records
WINDOW = 40  # requests in flight
SHOWN = 12
_TOPIC = ProduceRequest.TopicProduceData
_CONFIG = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig


class Answer(NamedTuple):
    """What a partition was answered; numbers that depend on the time of day are out of the texts."""

    code: int | None
    """None where the connection was closed."""
    stored: bool = False
    append_time: bool = False
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


CLOSED = Answer(None)


class Reason(NamedTuple):
    """A difference that is as it should be."""

    text: str
    holds: Callable[[Case, Answer, Answer], bool]


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
        lambda case, theirs, ours: _is(case, "broken varint") and ours.code == 87 and theirs.code in (0, 32),
    ),
    Reason(
        "timestamps above 64 bits, which Kafka wraps and other clients do not",
        lambda case, theirs, ours: _is(case, "times", "broken varint") and ours.code == 32 and theirs.code != 2,
    ),
    Reason(
        "UNKNOWN_SERVER_ERROR where Kafka fails with an exception that it does not expect, refused here by name",
        lambda case, theirs, ours: (
            _is(case, "length", "attributes", "magic", "cut", *_IN_RECORD)
            and theirs.code == -1
            and ours.code in (2, 87)
        ),
    ),
    Reason(
        "a v0 or v1 message whose value does not fill it, or a wrapper whose last message is cut: Kafka stores them",
        lambda case, theirs, ours: (
            _is(case, "tail", "value length", "key length", "length", "cut", "magic")
            and case.records[16] < 2
            and theirs.code in (0, 2, 87)
            and ours.code in (-1, 2)
        ),
    ),
    Reason(
        "a length near 2^31, which overflows in Kafka; here it reaches beyond the set, which ends before it",
        lambda case, theirs, ours: _is(case, "length") and theirs.code == -1 and ours.code == 0 and case.version < 3,
    ),
    Reason(
        "messages converted to v2 one by one: Kafka fails at a timestamp below -1 before it comes to one without a key",
        lambda case, theirs, ours: (
            case.topic == "compact"
            and _is(case, "timestamp")
            and case.records[16] < 2
            and (theirs.code, ours.code) == (-1, 87)
        ),
    ),
    Reason(
        "a transactional batch without a transactional id that is damaged, too",
        lambda case, theirs, ours: _is(case, "transactional", "control") and theirs.code == 53,
    ),
]


def request(case: Case) -> ProduceRequest:
    """The Produce request of one case."""
    data = _TOPIC.PartitionProduceData(index=0, records=case.records)
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[_TOPIC(name=case.topic, partition_data=[data])])


def _timeless(text: str | None) -> str | None:
    """Also without a record's description and with neither release's full stop."""
    if text is None:
        return None
    text = re.sub(r"within \[-?\d+, -?\d+\]", "within [...]", text)
    text = re.sub(r"timestamp type in message .*?\. Producer", "timestamp type in message. Producer", text)
    return re.sub(r"\.(?=$|'\))", "", text)


def answer_of(response: Any) -> Answer:
    (topic,) = response.responses
    (told,) = topic.partition_responses
    errors = tuple((one.batch_index, _timeless(one.batch_index_error_message)) for one in told.record_errors)
    return Answer(
        told.error_code, told.base_offset >= 0, told.log_append_time_ms >= 0, _timeless(told.error_message), errors
    )


def asked(client: RawClient, sent: Sequence[Case]) -> Iterator[Answer]:
    """The answers in order. A case for which the broker closes the connection is CLOSED."""
    position = 0
    while position < len(sent):
        part = sent[position : position + WINDOW]
        for found in client.calls([(request(case), case.version) for case in part]):
            position += 1
            if found is None:
                yield CLOSED
                break
            yield answer_of(found)


def _create_topics(side: Side) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[_CONFIG(name=key, value=value) for key, value in configs.items()],
        )
        for name, configs in TOPICS.items()
    ]
    made = side.client.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 4)
    if bad := [one for one in made.topics if one.error_code]:
        raise Failed(f"{side.name}: {bad}")


def _explained(case: Case, theirs: Answer, ours: Answer) -> str | None:
    return next((reason.text for reason in REASONS if reason.holds(case, theirs, ours)), None)


def _keep(release: str, now_ms: int, answered: Sequence[tuple[Case, Answer, Answer]]) -> None:
    """Writes the answers that ours shares to small batches, in place of those of that release."""
    kept = (
        [line for line in KEPT.read_text().splitlines() if json.loads(line)["release"] != release]
        if KEPT.exists()
        else []
    )
    alike = (one for one in answered if one[1] == one[2] and len(one[0].records) <= KEPT_BYTES_MAX)
    for case, theirs, _ in itertools.islice((one for one in alike if one[1].code not in (53, 47)), KEEP):
        answer = {
            "release": release,
            "topic": case.topic,
            "version": case.version,
            "now_ms": now_ms,
            "code": theirs.code,
            "refused": [index for index, _ in theirs.record_errors],
            "records": base64.b64encode(case.records).decode(),
        }
        kept.append(json.dumps(answer))
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text("\n".join(kept) + "\n")


def run(release: str) -> str:
    """All cases to both."""
    seed = int(os.environ.get("OTTLA_BATCHES_SEED", "0")) or secrets.randbits(32)
    now_ms = int(time.time() * 1000)
    sent = cases(seed, COUNT, now_ms, old=release != "4.3")
    with both(release, authorizer=False) as pair:
        for side in (pair.theirs, pair.ours):
            _create_topics(side)
        time.sleep(1)
        found = list(zip(sent, asked(pair.theirs.client, sent), asked(pair.ours.client, sent), strict=True))
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
        raise Failed(f"seed {seed}: {len(failures)} of {COUNT} differ, see {path}: {kinds.most_common(SHOWN)}")
    told = ", ".join(f"{count} {code}" for code, count in codes.most_common())
    reasons = "; ".join(f"{count} for {text}" for text, count in explained.most_common())
    return f"{COUNT} batches, seed {seed}: Kafka's codes {told}; other answers: {reasons or 'none'}"


CHECKS = [
    Check(f"damaged batches to Kafka {version}", lambda release=release: run(release))
    for release, version in RELEASES.items()
    if release != "2.8"  # whose texts differ, and 3.9 takes the older formats, too
]
