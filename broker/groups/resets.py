"""New offsets of a group in an offset reset: the scenarios of kafka-consumer-groups (KIP-122).

Owns the scenarios and the rule that an offset outside its log becomes the nearest one inside it. Callers pass a
`Lookup`: of the broker's own logs, or over a connection.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field

from ...protocol.frozen import frozen
from .offsets import Partition

EARLIEST, LATEST, CURRENT, OFFSET, SHIFT, TIME = SCENARIOS = (
    "earliest",
    "latest",
    "current",
    "offset",
    "shift",
    "time",
)
INACTIVE = frozenset({"Empty", "Dead"})
"""Group states in which offsets may be reset."""

NewOffsets = dict[Partition, int]
Lookup = Callable[[Collection[Partition], int], Awaitable[NewOffsets]]
"""Returns the offset of the first record of each partition with this timestamp or a later one, -1 if there is none. As
in ListOffsets it is the log start offset for LOG_START, and the log end offset as consumers see it for LOG_END."""
LOG_START, LOG_END = -2, -1


class CannotReset(Exception):
    """An impossible offset reset; the message is one line for the user."""


@frozen
class Reset:
    """A scenario. `number` is the offset for OFFSET, the distance for SHIFT, and milliseconds since 1970 for TIME."""

    to: str
    number: int = 0


@dataclass(slots=True)
class Plan:
    """New offsets of a reset. `out_of_range` has (requested offset, log start, log end); `without_records`
    has the partitions without a record since the requested time, which are set to their log end."""

    offsets: NewOffsets
    out_of_range: dict[Partition, tuple[int, int, int]] = field(default_factory=dict[Partition, tuple[int, int, int]])
    without_records: list[Partition] = field(default_factory=list[Partition])


def check_inactive(group: str, state: str) -> None:
    """Raises CannotReset, with Kafka's message, while a group has members."""
    if state not in INACTIVE:
        raise CannotReset(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
        )


async def planned(
    reset: Reset, wanted: Collection[Partition], committed: Mapping[Partition, int], lookup: Lookup
) -> Plan:
    """Returns the new offsets for `reset`. `committed` are the group's committed offsets, the base of SHIFT and
    CURRENT. Raises CannotReset, and the errors of `lookup`.
    """
    if reset.to == OFFSET:
        return await in_range(dict.fromkeys(wanted, reset.number), lookup)
    if reset.to == SHIFT:
        missing = next((where for where in wanted if where not in committed), None)
        if missing is not None:
            text = f"{missing[0]}-{missing[1]} since there is no current committed offset"
            raise CannotReset(f"Cannot shift offset for partition {text}")
        return await in_range({where: committed[where] + reset.number for where in wanted}, lookup)
    if reset.to == EARLIEST:
        return Plan(await lookup(wanted, LOG_START))
    if reset.to == LATEST:
        return Plan(await lookup(wanted, LOG_END))
    if reset.to == CURRENT:
        kept = {where: committed[where] for where in wanted if where in committed}
        return Plan(kept | await lookup([where for where in wanted if where not in committed], LOG_END))
    found = await lookup(wanted, reset.number)
    late = sorted(where for where, offset in found.items() if offset < 0)
    return Plan(found | await lookup(late, LOG_END), without_records=late)


async def in_range(offsets: Mapping[Partition, int], lookup: Lookup) -> Plan:
    """Returns the offsets, each moved to the nearest one within its log."""
    starts, ends = await lookup(list(offsets), LOG_START), await lookup(list(offsets), LOG_END)
    plan = Plan({})
    for where, offset in offsets.items():
        found = plan.offsets[where] = min(max(offset, starts[where]), ends[where])
        if found != offset:
            plan.out_of_range[where] = offset, starts[where], ends[where]
    return plan
