"""Checks the records of a producer and converts them to what the log stores.

Applies Kafka's rules for the records of one partition in a Produce request: shape, size, CRC, offsets, codec, keys,
timestamps (KIP-32, KIP-98, KIP-110, KIP-467, KIP-937), and converts records if the topic has another codec or message
format. The rules for one v2 batch are in validate_batch.py, those for sets of older formats, which Produce v0-v2 carry,
in validate_legacy.py. Producer state is checked elsewhere, and the time is an argument. `Rules` has the differences
between releases; the caller maps exceptions to the error codes of a release.

Every record of a batch is checked in full, as Kafka does: count, lengths, headers, timestamps, keys in compacted
topics. A record that cannot be decoded would stop every consumer of its partition for ever. A compressed batch is
decompressed within a bound, and its offset deltas are checked too. `walk.whole_from` checks batches without a refused
record; `examining` finds the errors of the others, and handles batches that are written again. If `Rules.walk_records`
is False (ottla.validate.records=false), the header is trusted instead, for trusted clients.

`decide` chooses between two paths: the fast path checks a batch and returns; `slow_path_steps` does everything else. No
step is long: it has at most STEP_RECORDS records, on the fast path `walk.RECORDS_AT_ONCE`. Walking reads a few bytes of
each record, so the bytes of a step do not count there.
"""

from __future__ import annotations

from functools import partial

from ..limits import INT64_MAX, INT64_MIN
from ..named import NamedTuple
from . import batch, set_writer, walk
from .batch import NO_TIMESTAMP, BatchHeader
from .compression import Codec
from .errors import CorruptRecords, InvalidRecords, Undecodable, UnsupportedCodec, WrongBatches
from .layout import CODEC_AT, MAGIC_AT
from .new_tuple import new_tuple
from .plain import plain_header
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
    next_entry,
    rebuilding,
)


class Decision(NamedTuple):
    """The path for the records. With `prepared` the fast path is complete; otherwise `slow_path_steps` continues from
    what was checked."""

    prepared: Prepared | None
    header: BatchHeader | None = None
    """The header of the only batch, with CRC and fields checked; None if nothing is checked yet."""
    is_large: bool = False
    """The decompressed records take more than one step, or are damaged."""


_UNCHECKED = Decision(None)


def prepare(
    records: Buffer, rules: Rules, now_ms: int, produce_version: int | None = None, base_offset: int = 0
) -> Prepared:
    """Checks the records of one partition against the topic's rules and converts them to what the log stores.

    The checks are in Kafka's order: the request's version, then size and CRC of each batch, headers, records. An
    incomplete entry at the end is ignored, as in Kafka; a set of Produce v0-v2 may become empty. `base_offset` is the
    expected log end offset at the time of the append: v0 and v1 entries are numbered from it, which leaves less work
    for `place`; v2 batches start at 0 until they are placed. Raises CorruptRecords, InvalidRecords (InvalidTimestamps,
    WrongBatches), MessageTooLarge, UnsupportedCodec, UnsupportedForFormat, Unwritable; `records` is then unchanged.
    """
    return run(preparing(records, rules, now_ms, produce_version, base_offset))


def prepare_in_one_step(
    records: Buffer, rules: Rules, now_ms: int, produce_version: int, base_offset: int = 0
) -> Prepared | None:
    """Like `prepare`, but returns None if more than one step is needed. `records` is then unchanged, for
    `preparing`."""
    decision = decide(records, rules, now_ms, produce_version)
    if decision.prepared is not None:
        return decision.prepared
    if decision.header is not None and decision.header.record_count > STEP_RECORDS:
        return None  # its first step would be done again
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
    """Like `prepare`, in steps. The records must not change in between."""
    version = rules.produce_version if produce_version is None else produce_version
    decision = decide(records, rules, now_ms, version)
    if decision.prepared is not None:
        return decision.prepared
    return (yield from slow_path_steps(records, decision, rules, now_ms, version, base_offset))


def place(prepared: Prepared, base_offset: int, leader_epoch: int) -> Prepared:
    """Sets the offsets of the prepared records, in their own buffer if possible. The returned value replaces
    `prepared`, which must not be used any more."""
    header = prepared.header
    if header.magic != batch.MAGIC or not prepared.headers:
        return set_writer.place(prepared, base_offset)
    buffer = prepared.buffer
    batch.assign(buffer, 0, base_offset=base_offset, leader_epoch=leader_epoch)
    header = header.placed(base_offset, leader_epoch)
    return new_tuple(Prepared, (buffer, header, prepared.log_append_time_ms, base_offset, (header,), None))


# --- the two paths


def decide(records: Buffer, rules: Rules, now_ms: int, produce_version: int) -> Decision:
    """Takes the fast path if possible: for one v2 batch that is stored unchanged, whose records can be checked in one
    step, and that no rule refuses. That is the usual case. Raises like `prepare` for errors of version, CRC and
    header."""
    size = len(records)
    if size < batch.HEADER_BYTES or records[MAGIC_AT] != batch.MAGIC or size > CHECKSUM_BYTES:
        return _UNCHECKED
    plain = plain_header(records, rules, now_ms)
    if plain is not None:
        prepared = new_tuple(Prepared, (writable(records, size), plain, -1, 0, (plain,), None))
        return new_tuple(Decision, (prepared, None, False))
    try:
        header = batch.read_header(records, whole=False)
    except CorruptRecords:  # the length is invalid, but the request's version is checked first
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
        if count > walk.RECORDS_AT_ONCE or (codec and size > STEP_BYTES):
            return Decision(None, header)
        if codec:
            bound = rules.max_decompressed_bytes
            try:
                data = batch.payload(records, 0, header, max_bytes=bound if bound < STEP_BYTES else STEP_BYTES)
            except InvalidRecords:
                return Decision(None, header, is_large=True)
            if len(data) > rules.max_record_bytes:
                return Decision(None, header)
        else:
            data = memoryview(records)[batch.HEADER_BYTES :]
        walk.check_count(data, count)
        keyed = rules.compacted
        position, found, low, high, numbered = walk.whole_from(data, 0, count, 0, INT64_MIN, INT64_MAX, keyed)
        if found < count or position != len(data) or (codec and not numbered):
            return Decision(None, header)  # `examining` raises the error
        lowest, highest = header.base_timestamp + low, header.base_timestamp + high
    if not _is_in_range(lowest, highest, rules, now_ms):
        return Decision(None, header)
    return new_tuple(Decision, (_sealed(writable(records, size), header, highest, rules, now_ms), None, False))


def slow_path_steps(
    records: Buffer, decision: Decision, rules: Rules, now_ms: int, produce_version: int, base_offset: int
) -> Steps[Prepared]:
    """Handles all other cases, in steps: sets of older formats, batches that are written again, large batches, and
    those with refused records."""
    header = decision.header
    if header is None:
        if produce_version >= 3:
            header = only_batch(records, produce_version)
        else:
            header = _lone_batch(records, rules)
            if header is None:
                from . import validate_legacy  # not needed by clients of this decade: 2 ms of a start

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
        data = yield from inflating(opened, header, rules.max_decompressed_bytes, rules, large=decision.is_large)
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
    """Returns whether the batch can be stored unchanged, without decoding each record."""
    if rules.target_magic != batch.MAGIC or header.attributes & batch.LOG_APPEND_TIME_BIT:
        return False
    return rules.compression is None or rules.compression == codec


def _is_trusted(rules: Rules) -> bool:
    """Returns whether the header is trusted, so that the records are not walked."""
    return not rules.walk_records and not rules.compacted


def _is_in_range(lowest: int, highest: int, rules: Rules, now_ms: int) -> bool:
    return rules.log_append_time or not may_be_out_of_range(lowest, highest, rules, now_ms)


def _sealed(
    buffer: bytearray | memoryview, header: BatchHeader, max_timestamp: int, rules: Rules, now_ms: int
) -> Prepared:
    """Sets the fields that the broker decides. The buffer is modified only here, after every check."""
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


# --- the batch of a request


def only_batch(records: Buffer, produce_version: int) -> BatchHeader:
    """Returns the header of the only batch that Produce v3 and later allow; CRC and records are not checked.

    Raises WrongBatches, UnknownBatches, OverflowingSize, UnsupportedCodec, Undecodable for an unknown codec,
    InvalidRecords for a base offset other than 0, CorruptRecords for a batch shorter than its header.
    """
    magic, size = next_entry(records, 0)
    if magic is None:
        raise WrongBatches("there is no whole record batch")
    if magic != batch.MAGIC:
        raise WrongBatches(f"a batch of format v{magic}: Produce v{produce_version} takes v2 only")
    _check_version(records[CODEC_AT] & batch.CODEC_BITS, produce_version)
    if size != len(records) and next_entry(records, size)[0] is not None:
        raise WrongBatches("more than one record batch")
    check_base_offset(records, 0)
    return batch.read_header(records)


def _lone_batch(records: Buffer, rules: Rules) -> BatchHeader | None:
    """Returns the header of a v2 batch without another whole entry after it, as a client sends with a wrong Produce
    version."""
    overflows = rules.sizes_overflow
    magic, size = next_entry(records, 0, overflows=overflows)
    if magic != batch.MAGIC:
        return None
    check_base_offset(records, 0)
    header = batch.read_header(records)
    if size != len(records) and next_entry(records, size, overflows=overflows)[0] is not None:
        return None
    return header


def _check_version(codec: int, produce_version: int) -> None:
    if 3 <= produce_version < 7 and codec >= Codec.ZSTD:
        if codec > Codec.ZSTD:
            raise Undecodable(f"codec {codec} is unknown")
        raise UnsupportedCodec(f"zstd needs Produce v7, this is v{produce_version}")
