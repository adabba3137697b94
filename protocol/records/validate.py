"""What a producer's records must be before they may enter a log, and making them what the log stores.

Owns Kafka's rules for what one client sends for one partition: shape, size, CRC, offsets, codec, keys, timestamps
(KIP-32, KIP-98, KIP-110, KIP-467, KIP-937), and rebuilds the records where the topic wants another codec or format.
The rules for one v2 batch are in validate_batch.py, those for sets of the older formats, which Produce v0-v2 carry, in
validate_legacy.py. It knows no producer state and no clock: the time is an argument. How releases differ is in `Rules`;
which code an older release answers for the same fault is the caller's table.

Every record of a batch is checked whole, as Kafka checks it: count, lengths, headers, timestamps, keys of compacted
topics; a record that a consumer cannot decode would stop every consumer of its partition for ever. A compressed batch
is decompressed within a bound, and its offset deltas are checked, too. `walk.whole_from` does it for batches of which
nothing is refused; `examining` says what is wrong with the others, and is for batches that are written anew. Where
`Rules.walk_records` is False (ottla.validate.records=false) the header is trusted instead, for clients that are.

There are two paths, and `decide` chooses: the fast path checks a batch and returns; `slow_path_steps` do everything
else. Nothing takes long at a stretch: a step has at most STEP_RECORDS records. Walking touches a few bytes of each
record, so the bytes of a step do not count there.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ..limits import INT64_MAX, INT64_MIN
from . import batch, set_writer, validate_legacy, walk
from .batch import NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import CorruptRecords, InvalidRecords, MessageTooLarge, Undecodable, UnsupportedCodec, WrongBatches
from .layout import CODEC_AT, MAGIC_AT
from .new_tuple import new_tuple
from .rules import Buffer, Prepared, Rules, may_be_out_of_range, writable
from .steps import STEP_BYTES, STEP_RECORDS, Steps, run
from .validate_batch import (
    CHECKSUM_BYTES,
    check_base_offset,
    check_header,
    check_whole,
    examining,
    inflating,
    messages,
    rebuilding,
)

__all__ = [
    "MessageTooLarge",
    "Prepared",
    "Rules",
    "UnsupportedCodec",
    "place",
    "prepare",
    "prepare_in_one_step",
    "preparing",
]


class Decision(NamedTuple):
    """The path that records take: the fast path has ended where there is a `prepared`; else `slow_path_steps` go on
    from what was checked."""

    prepared: Prepared | None
    header: BatchHeader | None = None
    """Of the one batch that the records are, with its CRC and its fields checked; None if nothing is checked yet."""
    is_large: bool = False
    """The records of the batch take more than a step when they are decompressed, or they are damaged."""


_UNCHECKED = Decision(None)


def prepare(
    records: Buffer, rules: Rules, now_ms: int, produce_version: int | None = None, base_offset: int = 0
) -> Prepared:
    """Check what a client sent for one partition against the topic's rules, and make it what the log stores.

    The order of the checks is Kafka's: the request's version, then size and CRC of each batch, headers, records. What
    is cut at the end is not there, as in Kafka; a set of Produce v0-v2 may have nothing left. `base_offset` is where
    the log will probably end when this is written: what is stored as v0 or v1 is numbered from there, so that `place`
    has less to do; what is stored as v2 begins at 0 until it is placed. Raises CorruptRecords,
    InvalidRecords (InvalidTimestamps, WrongBatches), MessageTooLarge, UnsupportedCodec, UnsupportedForFormat,
    Unwritable; then nothing was changed.
    """
    return run(preparing(records, rules, now_ms, produce_version, base_offset))


def prepare_in_one_step(
    records: Buffer, rules: Rules, now_ms: int, produce_version: int, base_offset: int = 0
) -> Prepared | None:
    """As `prepare`; None if it takes more than one step. Then nothing was changed, and `preparing` does it."""
    decision = decide(records, rules, now_ms, produce_version)
    if decision.prepared is not None:
        return decision.prepared
    steps = slow_path_steps(records, decision, rules, now_ms, produce_version, base_offset)
    try:
        next(steps)
    except StopIteration as done:
        return done.value
    steps.close()
    return None


def preparing(
    records: Buffer, rules: Rules, now_ms: int, produce_version: int | None = None, base_offset: int = 0
) -> Steps[Prepared]:
    """As `prepare`, in steps. The records must not change in between."""
    version = rules.produce_version if produce_version is None else produce_version
    decision = decide(records, rules, now_ms, version)
    if decision.prepared is not None:
        return decision.prepared
    return (yield from slow_path_steps(records, decision, rules, now_ms, version, base_offset))


def place(prepared: Prepared, base_offset: int, leader_epoch: int) -> Prepared:
    """Give the prepared records their offsets in a log, in their own buffer wherever possible: what this returns stands
    for them from now on, not what it was given."""
    header = prepared.header
    if header.magic != batch.MAGIC or not prepared.headers:
        return set_writer.place(prepared, base_offset)
    buffer = prepared.buffer
    batch.assign(buffer, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    header = header.placed(base_offset, leader_epoch)
    return new_tuple(Prepared, (buffer, header, prepared.log_append_time_ms, base_offset, (header,), None))


# --- the two paths


def decide(records: Buffer, rules: Rules, now_ms: int, produce_version: int) -> Decision:
    """Takes the fast path as far as it leads: one v2 batch that is stored as it is, all of whose records are checked in
    one step and refused by no rule. Most batches are. Raises as `prepare` for what the request's version, the CRC or
    the header refuse.
    """
    size = len(records)
    if size < batch.HEADER_BYTES or records[MAGIC_AT] != batch.MAGIC or size > CHECKSUM_BYTES:
        return _UNCHECKED
    try:
        header = batch.read_header(records, whole=False)
    except CorruptRecords:  # a length that no v2 batch has, which the request's version is checked before
        return _UNCHECKED
    if header.size_bytes != size:
        return _UNCHECKED
    codec = header.codec
    if produce_version < 7:
        _check_version(codec, produce_version)
    check_whole(records, 0, header, rules)
    check_header(header, rules)
    if not _is_kept(header, codec, rules):
        return Decision(None, header)
    if _is_trusted(rules):
        lowest, highest = header.base_timestamp, header.max_timestamp
    else:
        count = header.record_count
        if count > STEP_RECORDS or (codec and size > STEP_BYTES):
            return Decision(None, header)
        if codec:
            bound = rules.max_decompressed_bytes
            try:
                data = batch.payload(records, 0, header, max_bytes=bound if bound < STEP_BYTES else STEP_BYTES)
            except InvalidRecords:
                return Decision(None, header, is_large=True)
        else:
            data = memoryview(records)[batch.HEADER_BYTES :]
        walk.check_count(data, count)
        keyed = rules.compacted
        position, found, low, high, numbered = walk.whole_from(data, 0, count, 0, INT64_MIN, INT64_MAX, keyed)
        if found < count or position != len(data) or (codec and not numbered):
            return Decision(None, header)  # `examining` raises what is wrong
        lowest, highest = header.base_timestamp + low, header.base_timestamp + high
    if not _is_in_range(lowest, highest, rules, now_ms):
        return Decision(None, header)
    return new_tuple(Decision, (_sealed(writable(records, size), header, highest, rules, now_ms), None, False))


def slow_path_steps(
    records: Buffer, decision: Decision, rules: Rules, now_ms: int, produce_version: int, base_offset: int
) -> Steps[Prepared]:
    """Everything else, in steps: sets of older formats, batches that are written anew, large ones, and those of which
    something is refused."""
    header = decision.header
    if header is None:
        if produce_version >= 3:
            header = only_batch(records, produce_version)
        else:
            header = _lone_batch(records, rules)
            if header is None:
                return (yield from validate_legacy.preparing(records, rules, now_ms, base_offset))
        if header.size_bytes > CHECKSUM_BYTES:
            yield partial(check_whole, records, 0, header, rules)
        else:
            check_whole(records, 0, header, rules)
        check_header(header, rules)
    source = header.codec
    target = source if rules.compression is None else rules.compression
    max_timestamp, buffer = header.max_timestamp, None
    is_trusted = _is_trusted(rules) and _is_kept(header, source, rules)
    if not is_trusted or not _is_in_range(header.base_timestamp, max_timestamp, rules, now_ms):
        opened = partial(batch.payload, records, 0, header)
        data = yield from inflating(opened, header, rules.max_decompressed_bytes, large=decision.is_large)
        findings = yield from examining(data, header, rules, now_ms)
        max_timestamp = findings.max_timestamp
        if rules.target_magic < batch.MAGIC:
            found = messages(data, header)
            return (yield from set_writer.writing(found, target, source, rules, now_ms, base_offset))
        if source != target or (source and not findings.consecutive):
            buffer = yield from rebuilding(data, header, findings, target, rules)
            header = batch.read_header(buffer)
    if buffer is None:
        buffer = writable(records, header.size_bytes)
    if header.size_bytes > CHECKSUM_BYTES:
        return (yield partial(_sealed, buffer, header, max_timestamp, rules, now_ms))
    return _sealed(buffer, header, max_timestamp, rules, now_ms)


def _is_kept(header: BatchHeader, codec: int, rules: Rules) -> bool:
    """Whether the batch may be stored as it is without a look at each record."""
    if rules.target_magic != batch.MAGIC or header.attributes & batch.LOG_APPEND_TIME_BIT:
        return False
    return rules.compression is None or rules.compression == codec


def _is_trusted(rules: Rules) -> bool:
    """Whether the header stands for the records, which are not walked."""
    return not rules.walk_records and not rules.compacted


def _is_in_range(lowest: int, highest: int, rules: Rules, now_ms: int) -> bool:
    return rules.log_append_time or not may_be_out_of_range(lowest, highest, rules, now_ms)


def _sealed(
    buffer: bytearray | memoryview, header: BatchHeader, max_timestamp: int, rules: Rules, now_ms: int
) -> Prepared:
    """Put in what the broker decides. This is where a buffer is changed, after everything that may be refused."""
    append_time_ms = -1
    if rules.log_append_time:
        attributes = header.attributes | batch.LOG_APPEND_TIME_BIT
        max_timestamp = append_time_ms = now_ms
    else:
        attributes = header.attributes & ~batch.LOG_APPEND_TIME_BIT
        if max_timestamp < NO_TIMESTAMP:
            max_timestamp = NO_TIMESTAMP
    if attributes != header.attributes or max_timestamp != header.max_timestamp:
        header = batch.reseal(buffer, attributes=attributes, max_timestamp=max_timestamp)
    return new_tuple(Prepared, (buffer, header, append_time_ms, 0, (header,), None))


# --- what a batch is


def only_batch(records: Buffer, produce_version: int) -> BatchHeader:
    """The header of the one batch that there must be from Produce v3 on; its CRC and records are not looked at.

    Raises WrongBatches, UnknownBatches, OverflowingSize, UnsupportedCodec, Undecodable for an unknown codec,
    InvalidRecords for another base offset than 0, CorruptRecords for a batch shorter than its header.
    """
    magic, size = validate_legacy.next_entry(records, 0)
    if magic is None:
        raise WrongBatches("there is no whole record batch")
    if magic != batch.MAGIC:
        raise WrongBatches(f"a batch of format v{magic}: Produce v{produce_version} takes v2 only")
    _check_version(records[CODEC_AT] & batch.CODEC_BITS, produce_version)
    if size != len(records) and validate_legacy.next_entry(records, size)[0] is not None:
        raise WrongBatches("more than one record batch")
    check_base_offset(records, 0)
    return batch.read_header(records)


def _lone_batch(records: Buffer, rules: Rules) -> BatchHeader | None:
    """The header of a v2 batch with nothing whole behind it, as a client that mistook the version sends it."""
    overflows = rules.sizes_overflow
    magic, size = validate_legacy.next_entry(records, 0, overflows=overflows)
    if magic != batch.MAGIC:
        return None
    check_base_offset(records, 0)
    header = batch.read_header(records)
    if size != len(records) and validate_legacy.next_entry(records, size, overflows=overflows)[0] is not None:
        return None
    return header


def _check_version(codec: int, produce_version: int) -> None:
    if 3 <= produce_version < 7 and codec >= Codec.ZSTD:
        if codec > Codec.ZSTD:
            raise Undecodable(f"codec {codec} is unknown")
        raise UnsupportedCodec(f"zstd needs Produce v7, this is v{produce_version}")
