"""What the heartbeats of groups of KIP-848 and later have in common."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ...errors import Refused


def check_texts(*named: tuple[str, str | None]) -> None:
    """Checks fields of a heartbeat, pairs of name and text, in order: none may be blank, null is accepted. Raises
    Refused.
    """
    for name, text in named:
        if text is not None and not text.strip():
            raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")
