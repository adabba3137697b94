"""The broker's verdict on a batch of an idempotent producer, with its reason in words for users.

Owns the texts and the choice of examples. The verdicts are `storage/producers/producer_state.py`'s, by the rules of a
profile, so that they are the same as the broker's. Pure. Sources: KIP-98, KIP-192, KIP-360, KAFKA-5494.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX
from ...protocol.named import NamedTuple
from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...storage.producers.producer_state import (
    ACCEPT,
    SEQUENCE_SPACE,
    CachedBatch,
    Fenced,
    Misplaced,
    Producer,
    ProducerRules,
    RuleOutcome,
    Verdict,
    at_or_below,
    judge,
)
from ...storage.producers.verification_guard import judge_transaction
from ..releases.profiles import Profile
from .producer_history import Written, after, missing_text, place_text

EPOCH_MAX = INT16_MAX


class Judge(NamedTuple):
    """The basis of a verdict: the profile, the rules and the message format of the topic, and the state of the log."""

    profile: Profile
    rules: ProducerRules
    magic: int
    log_start_offset: int
    log_bytes: int

    @property
    def release(self) -> str:
        return self.profile.name


class ProducerBatch(NamedTuple):
    """A batch that a producer might send, in a transaction or in none."""

    case: str
    epoch: int
    first_sequence: int
    record_count: int
    transactional: bool = False

    @property
    def last_sequence(self) -> int:
        return (self.first_sequence + self.record_count - 1) % SEQUENCE_SPACE


class BatchVerdict(NamedTuple):
    """The broker's verdict on a batch. `offset` and `timestamp_ms` are -1 if the response has none, or new ones."""

    batch: ProducerBatch
    code: ErrorCode
    written: bool
    offset: int
    timestamp_ms: int
    why: str


def examples(known: Producer | None, recent: list[Written], rules: ProducerRules) -> list[ProducerBatch]:
    """Returns the next batch of a producer and other possible ones: earlier, later, of other epochs.

    While a transaction is open, they belong to it.
    """
    found = _examples(known, recent, rules)
    if known is None or known.transaction_first_offset < 0:
        return found
    outside = found[0]._replace(case="the next, in no transaction")
    return [*(candidate._replace(transactional=True) for candidate in found), outside]


def _examples(known: Producer | None, recent: list[Written], rules: ProducerRules) -> list[ProducerBatch]:
    if known is None:
        return [ProducerBatch("its first", 0, 0, 1), ProducerBatch("a later one", 0, 1, 1)]
    batches = [of for of in known.batches if of.last_sequence >= 0]
    newest = known.last_sequence
    found = [ProducerBatch("the next", known.epoch, after(newest), 1)]
    if batches:
        found.append(_copy("the newest again", known.epoch, batches[-1]))
        if len(batches) > 1:
            found.append(_copy("the oldest cached again", known.epoch, batches[0]))
        older = [w for w in recent if w.epoch == known.epoch and w.batch.last_offset < batches[0].base_offset]
        if older and len(batches) >= rules.cached_batches:
            found.append(_copy("one before those again", known.epoch, older[-1].batch))
    found.append(ProducerBatch("one too far", known.epoch, (after(newest) + 1) % SEQUENCE_SPACE, 1))
    if known.epoch < EPOCH_MAX:
        found.append(ProducerBatch("a new epoch", known.epoch + 1, 0, 1))
    if known.epoch > 0:
        found.append(ProducerBatch("an old epoch", known.epoch - 1, 0, 1))
    return found


def _copy(case: str, epoch: int, of: CachedBatch) -> ProducerBatch:
    return ProducerBatch(case, epoch, of.first_sequence, of.offset_delta + 1)


def batch_verdict(
    by: Judge, producer_id: int, known: Producer | None, candidate: ProducerBatch, copy: Written | None
) -> BatchVerdict:
    """Returns the verdict on a batch. `copy` is the newest batch of the log with the same sequences and epoch."""
    if by.profile.behaviour.newest_magic < batch.MAGIC:
        why = f"{by.release} has no idempotent producers, nor the format that they write: both came with 0.11."
        return BatchVerdict(candidate, ErrorCode.UNSUPPORTED_VERSION, False, -1, -1, why)
    if by.magic < batch.MAGIC:
        why = f"The topic is written in format v{by.magic}, which has no place for producers and sequences."
        return BatchVerdict(candidate, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, False, -1, -1, why)
    header = _header(producer_id, candidate)
    verdict = judge_transaction(known, header, judge(known, header, by.rules), None)
    if verdict is ACCEPT:
        return BatchVerdict(candidate, ErrorCode.NONE, True, -1, -1, _why_accepted(by, known, candidate))
    if isinstance(verdict, CachedBatch):
        more = "Nothing is written; the response has that batch's offset and timestamp."
        if verdict.last_offset < by.log_start_offset:
            more += " It is below the log start: a broker that was started since has no state of it."
        return _duplicate(candidate, verdict, more)
    if verdict is RuleOutcome.DUPLICATE_SEQUENCE:
        return _written_before(by, known, candidate, copy)
    code, why = _refusal(by, known, candidate, verdict)
    return BatchVerdict(candidate, code, False, -1, -1, why)


def _header(producer_id: int, candidate: ProducerBatch) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=batch.HEADER_BYTES,
        partition_leader_epoch=-1,
        magic=batch.MAGIC,
        crc=0,
        attributes=batch.TRANSACTIONAL_BIT if candidate.transactional else 0,
        last_offset_delta=candidate.record_count - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=candidate.epoch,
        base_sequence=candidate.first_sequence,
        record_count=candidate.record_count,
    )


def _duplicate(candidate: ProducerBatch, of: CachedBatch, more: str) -> BatchVerdict:
    why = f"A copy of the batch at {place_text(of)}. {more}"
    return BatchVerdict(candidate, ErrorCode.NONE, False, of.base_offset, of.max_timestamp_ms, why)


def _written_before(by: Judge, known: Producer | None, candidate: ProducerBatch, copy: Written | None) -> BatchVerdict:
    """The verdict of the duplicate scan below the cached batches; see `storage/producers/duplicate_scan.py`."""
    reach = by.rules.scan_bytes
    if copy is not None and by.log_bytes - copy.log_position <= reach and copy.batch.last_offset >= by.log_start_offset:
        return _duplicate(
            candidate, copy.batch, f"It is no longer cached, but was found in the last {reach} bytes of the log."
        )
    where = f"and no copy of it is in the log's last {reach} bytes" if reach else "but its offset was dropped"
    why = f"It was written before, {where}. Producers treat this as a success without an offset (KIP-192)."
    return BatchVerdict(candidate, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, False, -1, -1, why)


def _why_accepted(by: Judge, known: Producer | None, candidate: ProducerBatch) -> str:
    if known is None or not known.batches:
        what = "The log has no state of it" if known is None else "The log has only a transaction marker of it"
        if candidate.first_sequence == 0:
            return f"{what}, and it begins with sequence 0."
        return f"{what}, and {by.release} then accepts any first sequence (KIP-360), so lost batches go unnoticed."
    if candidate.epoch > known.epoch:
        return f"A new epoch begins with sequence 0. From then on batches of epoch {known.epoch} are refused."
    newest = known.batches[-1]
    if newest.last_sequence < 0:
        return f"It begins with sequence 0 after a coordinator's batch at {place_text(newest)}, which has no sequences."
    return f"It follows sequence {newest.last_sequence}, which is at offset {newest.last_offset}."


def _refusal(by: Judge, known: Producer | None, candidate: ProducerBatch, verdict: Verdict) -> tuple[ErrorCode, str]:
    if isinstance(verdict, Fenced):
        why = f"Epoch {candidate.epoch} is over: the producer has written with epoch {verdict.current_epoch} since."
        return ErrorCode.INVALID_PRODUCER_EPOCH, why
    if isinstance(verdict, Misplaced):
        return ErrorCode.INVALID_TXN_STATE, f"It is {verdict.why}."
    if verdict is RuleOutcome.UNKNOWN:
        what = "The log has no state of it" if known is None else "The log has only a transaction marker of it"
        return ErrorCode.UNKNOWN_PRODUCER_ID, (
            f"{what}, and it does not begin with sequence 0. The response has the log start offset,"
            f" {by.log_start_offset}: if the producer's last acknowledged offset is below that, its records were"
            " deleted and it may start again; if not, they are lost (KIP-192)."
        )
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _why_out_of_order(by, known, candidate)


def _why_out_of_order(by: Judge, known: Producer | None, candidate: ProducerBatch) -> str:
    if known is None:
        return f"The log has no state of it, and it does not begin with sequence 0, as it must on {by.release}."
    if candidate.epoch > known.epoch:
        return "A new epoch has to begin with sequence 0."
    if not known.batches:
        return "The log has only a transaction marker of this epoch: its next batch has to begin with sequence 0."
    newest = known.last_sequence
    if newest < 0:
        return "The newest batch is a coordinator's, without sequences: the next of the producer's begins with 0."
    if not at_or_below(candidate.first_sequence, newest):
        missing = missing_text(after(newest), (candidate.first_sequence - 1) % SEQUENCE_SPACE)
        return f"A gap: {missing} missing before it. The producer treats this as lost records."
    if not at_or_below(candidate.last_sequence, newest):
        return f"Its sequences up to {newest} were written before, the others were not: neither a copy nor the next."
    remembered = len(known.batches)
    what = "the batch that is" if remembered == 1 else f"one of the {remembered} batches that are"
    return f"It was written before, but is no copy of {what} cached. {by.release} treats it as a gap."
