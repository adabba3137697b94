"""Why a record was delivered again to a share group, or is not delivered (KIP-932): rules over its state in flight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...protocol.text import moment, visible


def state_of(found: Mapping[str, Any], offset: int) -> Mapping[str, Any] | None:
    """Returns the range with this offset of the records in flight, or None."""
    return next((one for one in found["records"] if one["first"] <= offset <= one["last"]), None)


def lines(found: Mapping[str, Any], offset: int) -> list[str]:
    """Returns sentences about the deliveries of a record. `found` is the response of /groups/G/records."""
    start, limit = found["start_offset"], found["delivery_limit"]
    if start is None:
        return ["no member fetches from this share partition now: only its stored state exists"]
    if offset < start:
        return [f"it is done: the start offset is {start}. It is not delivered again"]
    one = state_of(found, offset)
    if one is None:
        return ["it is not in flight: it has not been delivered yet"]
    count = one["deliveries"]
    texts = [f"delivery {count} of at most {limit}" if count else "it has not been delivered yet"]
    ended = one["ended"]
    if one["state"] == "acquired":
        member = visible(one["member"] or "-")
        texts.append(f"member {member} has acquired it; its lock expires at {moment(one['lock_expires_ms'])}")
        if count > 1:
            texts.append(
                f"it was delivered again because of delivery {count - 1}: {ended or 'unknown since a restart'}"
            )
    elif one["state"] == "available":
        if count:
            texts.append(
                f"it will be delivered again because of delivery {count}: {ended or 'unknown since a restart'}"
            )
    elif one["state"] == "archived":
        last = ", its last delivery" if count >= limit and ended in ("released", "its lock expired") else ""
        texts.append(f"it is archived, and not delivered again: {ended or 'before a restart'}{last}")
    else:
        texts.append("it is acknowledged, and not delivered again")
    return texts
