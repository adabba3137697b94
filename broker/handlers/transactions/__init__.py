"""Handlers of the APIs of producer ids and transactions.

Each API supports PRODUCER_FENCED (KIP-588) and TRANSACTION_ABORTABLE (KIP-890) from one of its versions on.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode


def known(error: ErrorCode, *, fenced: bool = True, abortable: bool = True) -> ErrorCode:
    """Returns `error`, or the older code for a client without PRODUCER_FENCED or TRANSACTION_ABORTABLE."""
    if error is ErrorCode.PRODUCER_FENCED and not fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
