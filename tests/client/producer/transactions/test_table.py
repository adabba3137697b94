"""The state machine of the producer's transactions: every cell, and the meaning of the coordinators' error codes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.client.net import errors
from ottla.client.producer.transactions.state_machine import (
    CALLS,
    TABLE,
    Added,
    Call,
    Doom,
    Drain,
    Drained,
    Effect,
    End,
    Ended,
    Event,
    Fail,
    GroupAdded,
    Identified,
    RequestProducerId,
    Settle,
    State,
    TransactionStatus,
    Trouble,
    Use,
    Verdict,
    advance,
    fatal,
    judge,
)
from ottla.protocol.errors import ErrorCode
from ottla_testing.each import each

ONE, TWO = ("t", 0), ("t", 1)
REFUSED = errors.KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
LOST = errors.ConnectionLost("gone")
BOTH = [pytest.param(False, id="v1"), pytest.param(True, id="v2")]
EVENTS = (
    *CALLS,
    Identified(1, 0, True, True),
    Use(ONE),
    Event.TAKE,
    Added(frozenset([ONE])),
    Event.USE_GROUP,
    GroupAdded("g"),
    Trouble(REFUSED),
    Doom(errors.ProducerFailed("over")),
    Drained(False),
    Drained(True),
    Ended(2, 1),
)


def after_events(status: TransactionStatus, *events: Any) -> tuple[TransactionStatus, list[Any]]:
    """Returns the status after these events, and all effects."""
    effects: list[Any] = []
    for event in events:
        status, more = advance(status, event)
        effects += more
    return status, effects


def ready(is_v2: bool = False, can_bump: bool = True) -> TransactionStatus:
    return after_events(TransactionStatus(), Event.INITIALIZE, Identified(7, 3, is_v2, can_bump))[0]


def opened(is_v2: bool = False, can_bump: bool = True, *events: Any) -> TransactionStatus:
    return after_events(ready(is_v2, can_bump), Event.BEGIN, *events)[0]


def written(is_v2: bool, can_bump: bool = True) -> TransactionStatus:
    """Returns the status of an open transaction with one added partition."""
    events = (Use(ONE),) if is_v2 else (Use(ONE), Event.TAKE, Added(frozenset([ONE])))
    return opened(is_v2, can_bump, *events)


def in_state(state: State) -> TransactionStatus:
    return replace(written(False), state=state)


@each("state", State)
@each("event", EVENTS)
def test_cell_outside_the_table_changes_nothing_or_refuses_the_call(state: State, event: Any) -> None:
    status = in_state(state)
    if (state, event if isinstance(event, Event) else type(event)) in TABLE:
        return
    if event in CALLS:
        with pytest.raises(errors.InvalidTransactionState, match=state.value):
            advance(status, event)
    else:
        assert advance(status, event) == (status, ())


def test_producer_id_is_requested_once() -> None:
    status, effects = after_events(TransactionStatus(), Event.INITIALIZE)
    assert effects == [RequestProducerId()] and status.state is State.INITIALIZING
    status, effects = after_events(status, Identified(7, 3, True, True))
    assert effects == [Effect.ADOPT, Settle()]
    assert status == TransactionStatus(State.READY, 7, 3, is_v2=True, can_bump=True)


def test_partitions_are_added_together_before_they_are_written() -> None:
    status, effects = after_events(opened(), Use(ONE), Use(TWO), Use(ONE))
    assert effects == [Effect.ADD_PARTITIONS] and status.waiting == {ONE, TWO} and not status.may_have_begun
    status, _ = after_events(status, Event.TAKE)
    assert status.adding == {ONE, TWO} and not status.waiting
    assert status.may_have_begun and not status.has_begun
    status, effects = after_events(status, Use(("t", 2)))
    assert not effects and status.waiting == {("t", 2)}  # the request in flight is followed by another
    status, effects = after_events(status, Added(frozenset([ONE])))
    assert effects == [Effect.WAKE] and status.added == {ONE} and status.adding == {TWO} and status.has_begun


def test_transactions_v2_add_a_partition_by_its_first_write() -> None:
    status, effects = after_events(opened(is_v2=True), Use(ONE))
    assert not effects and status.added == {ONE} and status.may_have_begun and not status.has_begun


@pytest.mark.parametrize("is_v2", BOTH)
def test_commit_waits_for_all_records_and_requests_once(is_v2: bool) -> None:
    status, effects = after_events(written(is_v2), Event.COMMIT)
    assert effects == [Drain(is_aborting=False)] and status.state is State.COMMITTING
    status, effects = after_events(status, Use(TWO), Drained(False))
    assert effects[-1] == End(is_commit=True)
    status, effects = after_events(status, Ended(7, 4) if is_v2 else Ended())
    assert effects == ([Effect.ADOPT, Settle()] if is_v2 else [Settle()])
    assert status == replace(ready(is_v2), epoch=4 if is_v2 else 3)


def test_producer_id_may_change_at_the_end_of_a_transaction() -> None:
    status, effects = after_events(written(True), Event.COMMIT, Drained(False), Ended(8, 0))
    assert (status.producer_id, status.epoch) == (8, 0) and Effect.ADOPT in effects


@pytest.mark.parametrize("is_v2", BOTH)
@pytest.mark.parametrize("call", [Event.COMMIT, Event.ABORT])
def test_empty_transaction_ends_without_a_request(is_v2: bool, call: Event) -> None:
    is_aborting = call is Event.ABORT
    status, effects = after_events(opened(is_v2), call, Drained(is_aborting))
    assert effects == [Drain(is_aborting), *([Effect.REWIND] if is_aborting else []), Settle()]
    assert status == ready(is_v2)


@pytest.mark.parametrize("is_v2", BOTH)
def test_offsets_alone_are_committed(is_v2: bool) -> None:
    _, effects = after_events(opened(is_v2), Event.USE_GROUP, Event.COMMIT, Drained(False))
    assert effects[-1] == End(is_commit=True)


def test_failed_transaction_can_only_be_aborted() -> None:
    status, effects = after_events(written(False), Trouble(REFUSED))
    assert effects == [Effect.DROP_UNSENT] and status.state is State.FAILED
    with pytest.raises(errors.TransactionFailed) as raised:
        advance(status, Event.COMMIT)
    assert raised.value.__cause__ is REFUSED
    status, effects = after_events(status, Trouble(LOST), Event.ABORT, Drained(True), Ended())
    assert effects == [Drain(is_aborting=True), End(is_commit=False), Effect.REWIND, Settle()] and status == ready()


@pytest.mark.parametrize("is_v2", BOTH)
def test_failure_during_a_commit_fails_its_caller(is_v2: bool) -> None:
    status, effects = after_events(written(is_v2), Event.COMMIT, Trouble(REFUSED))
    assert effects[-2:] == [Effect.DROP_UNSENT, Settle(REFUSED)] and status.state is State.FAILED
    assert advance(status, Drained(False)) == (status, ())  # of the commit that is over


def test_commit_can_become_an_abort_until_it_was_requested() -> None:
    status, effects = after_events(written(False), Event.COMMIT, Event.ABORT, Drained(False))
    assert status.state is State.ABORTING and effects[-1] == Drain(is_aborting=True)
    status, _ = after_events(written(False), Event.COMMIT, Drained(False))
    with pytest.raises(errors.InvalidTransactionState, match="result is unknown"):
        advance(status, Event.ABORT)


# -- epochs (rule 5)


def test_unacknowledged_batch_requires_a_new_epoch_if_available() -> None:
    status, effects = after_events(written(False), Trouble(LOST, True, False), Event.ABORT, Drained(True), Ended())
    assert effects[-1] == RequestProducerId(7, 3) and status.state is State.INITIALIZING
    status, effects = after_events(status, Identified(7, 4, False, True))
    assert effects == [Effect.ADOPT, Settle()] and status == replace(ready(), epoch=4)


def test_transactions_v2_get_the_new_epoch_from_the_abort() -> None:
    status, effects = after_events(written(True), Trouble(LOST, True, False), Event.ABORT, Drained(True), Ended(7, 4))
    assert effects[-2:] == [Effect.ADOPT, Settle()] and status == replace(ready(True), epoch=4)


def test_sequences_go_back_without_new_epochs_if_that_is_certain() -> None:
    status, effects = after_events(
        written(False, False), Trouble(REFUSED, True, True), Event.ABORT, Drained(True), Ended()
    )
    assert effects[-2:] == [Effect.REWIND, Settle()] and status == ready(can_bump=False)
    status, effects = after_events(
        written(False, False), Trouble(LOST, True, False), Event.ABORT, Drained(True), Ended()
    )
    assert status.state is State.FATAL and isinstance(effects[-2], Fail)


@pytest.mark.parametrize(("is_v2", "can_bump", "always"), [(0, 0, True), (0, 1, False), (1, 1, False)])
def test_sent_batches_are_retried_until_a_response_without_new_epochs(
    is_v2: bool, can_bump: bool, always: bool
) -> None:
    assert ready(bool(is_v2), bool(can_bump)).resends_always is always


def test_id_unknown_to_the_coordinator_is_renewed_instead_of_aborted() -> None:
    unknown = Trouble(errors.KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING), is_unknown=True)
    _, effects = after_events(written(True), unknown, Event.ABORT, Drained(True))
    assert effects[-1] == RequestProducerId(7, 3)
    _, effects = after_events(written(True), Event.ABORT, Drained(True), unknown)
    assert effects[-2:] == [End(is_commit=False), RequestProducerId(7, 3)]


@pytest.mark.parametrize("state", [state for state in State if state is not State.FATAL])
def test_doom_ends_the_producer_in_every_state(state: State) -> None:
    error = errors.ProducerFailed("over")
    status, effects = after_events(in_state(state), Doom(error))
    assert status.state is State.FATAL and effects == [Fail(error), Settle(error)]


# -- responses


@each("call", Call)
@each(
    ("code", "verdict"),
    [
        (ErrorCode.NONE, Verdict.DONE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Verdict.MOVED),
        (ErrorCode.NOT_COORDINATOR, Verdict.MOVED),
        (ErrorCode.CONCURRENT_TRANSACTIONS, Verdict.SOON),
        (ErrorCode.REQUEST_TIMED_OUT, Verdict.AGAIN),
        (ErrorCode.PRODUCER_FENCED, Verdict.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Verdict.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
    ],
)
def test_codes_with_the_same_verdict_for_every_call(call: Call, code: int, verdict: Verdict) -> None:
    assert judge(written(True), call, code) is verdict


TROUBLE, UNKNOWN, FATAL = Verdict.TROUBLE, Verdict.UNKNOWN, Verdict.FATAL


@pytest.mark.parametrize(
    ("code", "init", "add", "offsets", "commit", "abort"),
    [
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, FATAL, TROUBLE, TROUBLE, FATAL, FATAL),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, FATAL, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        (ErrorCode.TRANSACTION_ABORTABLE, FATAL, TROUBLE, TROUBLE, TROUBLE, FATAL),
        (ErrorCode.INVALID_TXN_STATE, FATAL, TROUBLE, TROUBLE, TROUBLE, FATAL),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, FATAL, TROUBLE, TROUBLE, FATAL, FATAL),
        (ErrorCode.ILLEGAL_GENERATION, FATAL, TROUBLE, TROUBLE, FATAL, FATAL),
        (ErrorCode.UNKNOWN_SERVER_ERROR, FATAL, TROUBLE, TROUBLE, FATAL, FATAL),
    ],
)
def test_codes_with_different_verdicts_by_call(
    code: int, init: Verdict, add: Verdict, offsets: Verdict, commit: Verdict, abort: Verdict
) -> None:
    assert [judge(written(False), call, code) for call in Call] == [init, add, offsets, commit, abort]


def test_unknown_producer_id_is_fatal_without_new_epochs() -> None:
    assert judge(ready(can_bump=False), Call.COMMIT, ErrorCode.INVALID_PRODUCER_ID_MAPPING) is FATAL


def test_abort_of_a_transaction_that_may_not_have_begun_succeeds() -> None:
    unanswered = opened(False, True, Use(ONE), Event.TAKE)
    assert judge(unanswered, Call.ABORT, ErrorCode.INVALID_TXN_STATE) is Verdict.DONE
    # The error of a refused commit gives no cause; with version 2 an abort is never refused like this.
    refused, _ = after_events(written(False), Event.COMMIT, Drained(False), Trouble(REFUSED))
    assert judge(refused, Call.ABORT, ErrorCode.INVALID_TXN_STATE) is Verdict.DONE
    assert judge(opened(True, True, Use(ONE)), Call.ABORT, ErrorCode.INVALID_TXN_STATE) is FATAL


def test_fatal_errors_have_their_classes() -> None:
    fenced = fatal(Call.COMMIT, ErrorCode.PRODUCER_FENCED, "shop")
    assert isinstance(fenced, errors.ProducerFenced) and "'shop'" in str(fenced)
    refused = fatal(Call.INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT, "shop")
    assert not isinstance(refused, errors.ProducerFenced) and "INVALID_TRANSACTION_TIMEOUT" in str(refused)
    assert isinstance(refused.__cause__, errors.KafkaError) and refused.__cause__.number == 50
