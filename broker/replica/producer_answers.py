"""What a broker answers to a batch of an idempotent producer, and why, in words for people.

Owns the words and the choice of examples. The verdicts are `storage/producers/producer_state.py`'s, by the rules of a
profile, so that nothing is decided here that the broker decides otherwise. Pure. Sources: KIP-98, KIP-192, KIP-360,
KAFKA-5494.
"""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...storage.producers.producer_state import (
    SEQUENCE_SPACE,
    Accept,
    CachedBatch,
    Duplicate,
    DuplicateWithoutOffset,
    Fenced,
    Misplaced,
    OutOfOrder,
    Producer,
    ProducerRules,
    Unknown,
    at_or_below,
    judge,
)
from ...storage.producers.verification_guard import judge_transaction
from .producer_history import Written, after, missing_text, place_text

EPOCH_MAX = INT16_MAX


class Judge(NamedTuple):
    """By what is judged: the profile's name and its rules, and the log as it is.

    `magic` is the format in which the topic is written; `knows_producers` is False for releases before 0.11.
    """

    release: str
    rules: ProducerRules
    magic: int
    knows_producers: bool
    log_start_offset: int
    log_bytes: int


class Asked(NamedTuple):
    """A batch that a producer might send, in a transaction or in none."""

    case: str
    epoch: int
    first_sequence: int
    record_count: int
    transactional: bool = False

    @property
    def last_sequence(self) -> int:
        return (self.first_sequence + self.record_count - 1) % SEQUENCE_SPACE


class Answer(NamedTuple):
    """What the broker says to it. `offset` and `timestamp_ms` are -1 where the answer has none, or it is new."""

    asked: Asked
    code: ErrorCode
    written: bool
    offset: int
    timestamp_ms: int
    why: str


def examples(known: Producer | None, recent: list[Written], rules: ProducerRules) -> list[Asked]:
    """The next batch of a producer, and what may come instead: before it, after it, of other epochs.

    While a transaction is open they belong to it.
    """
    found = _examples(known, recent, rules)
    if known is None or known.transaction_first_offset < 0:
        return found
    outside = found[0]._replace(case="the next, in no transaction")
    return [*(asked._replace(transactional=True) for asked in found), outside]


def _examples(known: Producer | None, recent: list[Written], rules: ProducerRules) -> list[Asked]:
    if known is None:
        return [Asked("its first", 0, 0, 1), Asked("a later one", 0, 1, 1)]
    batches = [of for of in known.batches if of.last_sequence >= 0]
    newest = known.batches[-1].last_sequence if known.batches else -1
    found = [Asked("the next", known.epoch, after(newest), 1)]
    if batches:
        found.append(_copy("the newest again", known.epoch, batches[-1]))
        if len(batches) > 1:
            found.append(_copy("the oldest remembered again", known.epoch, batches[0]))
        older = [w for w in recent if w.epoch == known.epoch and w.batch.last_offset < batches[0].base_offset]
        if older and len(batches) >= rules.cached_batches:
            found.append(_copy("one before those again", known.epoch, older[-1].batch))
    found.append(Asked("one too far", known.epoch, (after(newest) + 1) % SEQUENCE_SPACE, 1))
    if known.epoch < EPOCH_MAX:
        found.append(Asked("a new epoch", known.epoch + 1, 0, 1))
    if known.epoch > 0:
        found.append(Asked("an old epoch", known.epoch - 1, 0, 1))
    return found


def _copy(case: str, epoch: int, of: CachedBatch) -> Asked:
    return Asked(case, epoch, of.first_sequence, of.offset_delta + 1)


def answer(by: Judge, producer_id: int, known: Producer | None, asked: Asked, copy: Written | None) -> Answer:
    """What a broker says to a batch. `copy` is the newest batch of the log with the very same sequences and epoch."""
    if not by.knows_producers:
        why = f"{by.release} knows no idempotent producers, nor the format that they write: both came with 0.11."
        return Answer(asked, ErrorCode.UNSUPPORTED_VERSION, False, -1, -1, why)
    if by.magic < batch.MAGIC:
        why = f"The topic is written in format v{by.magic}, which has no place for producers and sequences."
        return Answer(asked, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, False, -1, -1, why)
    header = _header(producer_id, asked)
    verdict = judge_transaction(known, header, judge(known, header, by.rules), None)
    if isinstance(verdict, Accept):
        return Answer(asked, ErrorCode.NONE, True, -1, -1, _why_accepted(by, known, asked))
    if isinstance(verdict, Duplicate):
        more = "Nothing is written; the answer has that batch's offset and timestamp."
        if verdict.of.last_offset < by.log_start_offset:
            more += " It is below the log start: a broker that was started since does not remember it."
        return _duplicate(asked, verdict.of, more)
    if isinstance(verdict, DuplicateWithoutOffset):
        return _written_before(by, known, asked, copy)
    code, why = _refusal(by, known, asked, verdict)
    return Answer(asked, code, False, -1, -1, why)


def _header(producer_id: int, asked: Asked) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=batch.HEADER_BYTES,
        partition_leader_epoch=-1,
        magic=batch.MAGIC,
        crc=0,
        attributes=batch.TRANSACTIONAL_BIT if asked.transactional else 0,
        last_offset_delta=asked.record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=asked.epoch,
        base_sequence=asked.first_sequence,
        record_count=asked.record_count,
    )


def _duplicate(asked: Asked, of: CachedBatch, more: str) -> Answer:
    why = f"A copy of the batch at {place_text(of)}. {more}"
    return Answer(asked, ErrorCode.NONE, False, of.base_offset, of.max_timestamp_ms, why)


def _written_before(by: Judge, known: Producer | None, asked: Asked, copy: Written | None) -> Answer:
    """As the scan behind the remembered batches finds it; see `storage/producers/duplicate_scan.py`."""
    reach = by.rules.scan_bytes
    if copy is not None and by.log_bytes - copy.log_position <= reach and copy.batch.last_offset >= by.log_start_offset:
        return _duplicate(
            asked, copy.batch, f"It is no longer remembered, but was found in the last {reach} bytes of the log."
        )
    where = f"and no copy of it is in the log's last {reach} bytes" if reach else "but it is not remembered where"
    why = f"It was written before, {where}. Producers take this for a success without an offset (KIP-192)."
    return Answer(asked, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, False, -1, -1, why)


def _why_accepted(by: Judge, known: Producer | None, asked: Asked) -> str:
    if known is None or not known.batches:
        what = "Nothing is known of the producer" if known is None else "Only a transaction's marker is known of it"
        if asked.first_sequence == 0:
            return f"{what}, and it begins with sequence 0."
        return f"{what}, and {by.release} then takes any first sequence (KIP-360): that some were lost goes unnoticed."
    if asked.epoch > known.epoch:
        return f"A new epoch begins with sequence 0. From then on batches of epoch {known.epoch} are refused."
    newest = known.batches[-1]
    if newest.last_sequence < 0:
        return (
            f"It begins with sequence 0 behind a coordinator's batch at {place_text(newest)}, which has no sequences."
        )
    return f"It follows sequence {newest.last_sequence}, which is at offset {newest.last_offset}."


def _refusal(
    by: Judge, known: Producer | None, asked: Asked, verdict: Fenced | OutOfOrder | Unknown | Misplaced
) -> tuple[ErrorCode, str]:
    if isinstance(verdict, Fenced):
        why = f"Epoch {asked.epoch} is over: the producer has written with epoch {verdict.current_epoch} since."
        return ErrorCode.INVALID_PRODUCER_EPOCH, why
    if isinstance(verdict, Misplaced):
        return ErrorCode.INVALID_TXN_STATE, f"It is {verdict.why}."
    if isinstance(verdict, Unknown):
        what = "Nothing is known of the producer" if known is None else "Only a transaction's marker is known of it"
        return ErrorCode.UNKNOWN_PRODUCER_ID, (
            f"{what}, and it does not begin with sequence 0. The answer has the log start offset,"
            f" {by.log_start_offset}: if the producer's last acknowledged offset is below that, its records were"
            " deleted and it may begin anew; if not, they are lost (KIP-192)."
        )
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _why_out_of_order(by, known, asked)


def _why_out_of_order(by: Judge, known: Producer | None, asked: Asked) -> str:
    if known is None:
        return f"Nothing is known of the producer, and it does not begin with sequence 0, as it must on {by.release}."
    if asked.epoch > known.epoch:
        return "A new epoch has to begin with sequence 0."
    if not known.batches:
        return "Only a transaction's marker is known of this epoch: its next batch has to begin with sequence 0."
    newest = known.batches[-1].last_sequence
    if newest < 0:
        return "The newest batch is a coordinator's, without sequences: the next of the producer's begins with 0."
    if not at_or_below(asked.first_sequence, newest):
        missing = missing_text(after(newest), (asked.first_sequence - 1) % SEQUENCE_SPACE)
        return f"A gap: {missing} missing before it. For the producer that is the loss of records."
    if not at_or_below(asked.last_sequence, newest):
        return f"Its sequences up to {newest} were written before, the others were not: neither a copy nor the next."
    remembered = len(known.batches)
    what = "the batch that is" if remembered == 1 else f"one of the {remembered} batches that are"
    return f"It was written before, but is no copy of {what} remembered. {by.release} answers as to a gap."
