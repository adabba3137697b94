"""Texts on the clock and on fault rules for `ottla top` and `ottla ctl`."""

from __future__ import annotations

from typing import Any

from ...protocol.narrowing import is_list


def ahead(milliseconds: int) -> str:
    """Returns the offset of the broker's clock from the machine's as text."""
    if milliseconds == 0:
        return "equal to the machine's clock"
    days, rest = divmod(abs(milliseconds), 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{days}d " * bool(days) + f"{hours:02}:{minutes:02}:{rest // 1000:02}.{rest % 1000:03}"
    return f"{text} {'ahead of' if milliseconds > 0 else 'behind'} the machine's clock"  # words: quoted


def fault_where(fault: Any) -> str:
    """Returns the conditions and parameters of a fault rule as NAME=VALUE texts."""
    apart = ("id", "action", "matched", "fired")
    pairs = [(name, value) for name, value in fault.items() if name not in apart]
    return " ".join(f"{name}={','.join(map(str, v)) if is_list(v) else v}" for name, v in pairs)
