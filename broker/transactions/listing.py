"""The filters of ListTransactions (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ...protocol.errors import ErrorCode
from ..errors import Refused
from ..patterns import BadPattern, Pattern
from .state import Transaction, TransactionState

_STATES = {state.value: state for state in TransactionState}


def listed(
    transactions: Iterable[Transaction],
    now_ms: int,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> tuple[list[str], list[Transaction]]:
    """Returns the unknown names in `states`, and the transactions that pass all filters; an empty filter accepts all.

    `duration_ms` selects transactions that have been open for longer; `pattern` is a regular expression that must match
    the whole id. Raises Refused (INVALID_REGULAR_EXPRESSION).
    """
    unknown = [name for name in states if name not in _STATES]
    wanted = {_STATES[name] for name in states if name in _STATES}
    matches = _matcher(pattern)
    found = [
        transaction
        for transaction in transactions
        if (not states or transaction.state in wanted)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
        and matches(transaction.transactional_id)
    ]
    return unknown, found


def _matcher(pattern: str | None) -> Callable[[str], bool]:
    if not pattern:
        return lambda _: True
    try:
        return Pattern(pattern).fullmatch
    except BadPattern as error:
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error
