"""How the coordinator's answers reach clients of older versions: the codes that these know.

An API's clients learned of PRODUCER_FENCED (KIP-588) and of TRANSACTION_ABORTABLE (KIP-890) with one of its versions.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode


def known(error: ErrorCode, *, fenced: bool = True, abortable: bool = True) -> ErrorCode:
    """`error` as a client takes it that may not know of being fenced, or of a transaction that can only be aborted."""
    if error is ErrorCode.PRODUCER_FENCED and not fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
