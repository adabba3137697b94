"""The offsets to which a reset sets a group: the scenarios of kafka-consumer-groups (KIP-122).

Owns the scenarios and the rule that an offset outside of a log becomes the nearest one in it. Where offsets are looked
up, from a state or over a connection, is the caller's: see `Lookup`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

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
"""The states of a group whose offsets may be reset."""

NewOffsets = dict[Partition, int]


class CannotReset(Exception):
    """A reset that is not possible; one line that says why."""


@dataclass(frozen=True, slots=True)
class Reset:
    """A scenario. `number` is the offset of OFFSET, the distance of SHIFT, the milliseconds since 1970 of TIME."""

    to: str
    number: int = 0


class Lookup(Protocol):
    """Looks offsets up, each in the log of its partition."""

    async def earliest(self, wanted: Collection[Partition]) -> NewOffsets:
        """Log start offsets."""
        ...

    async def latest(self, wanted: Collection[Partition]) -> NewOffsets:
        """Log end offsets as consumers see them."""
        ...

    async def since(self, wanted: Collection[Partition], timestamp_ms: int) -> NewOffsets:
        """Offsets of the first records with this timestamp or a later one; -1 where there is none."""
        ...


@dataclass(slots=True)
class Plan:
    """The new offsets. `out_of_range` has what was asked for instead, with the log's start and end; `without_records`
    the partitions without a record since the wanted time, which are set to the end."""

    offsets: NewOffsets
    out_of_range: dict[Partition, tuple[int, int, int]] = field(default_factory=dict[Partition, tuple[int, int, int]])
    without_records: list[Partition] = field(default_factory=list[Partition])


def check_inactive(group: str, state: str) -> None:
    """Raises CannotReset while a group has members, in Kafka's words."""
    if state not in INACTIVE:
        raise CannotReset(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is {state}."
        )


async def planned(
    reset: Reset, wanted: Collection[Partition], committed: Mapping[Partition, int], lookup: Lookup
) -> Plan:
    """The offsets that `reset` leads to. `committed` has what the group has committed, which SHIFT and CURRENT start
    from. Raises CannotReset and what `lookup` raises."""
    if reset.to == OFFSET:
        return await in_range(dict.fromkeys(wanted, reset.number), lookup)
    if reset.to == SHIFT:
        missing = next((where for where in wanted if where not in committed), None)
        if missing is not None:
            text = f"{missing[0]}-{missing[1]} since there is no current committed offset"
            raise CannotReset(f"Cannot shift offset for partition {text}")
        return await in_range({where: committed[where] + reset.number for where in wanted}, lookup)
    if reset.to == EARLIEST:
        return Plan(await lookup.earliest(wanted))
    if reset.to == LATEST:
        return Plan(await lookup.latest(wanted))
    if reset.to == CURRENT:
        kept = {where: committed[where] for where in wanted if where in committed}
        return Plan(kept | await lookup.latest([where for where in wanted if where not in committed]))
    found = await lookup.since(wanted, reset.number)
    late = sorted(where for where, offset in found.items() if offset < 0)
    return Plan(found | await lookup.latest(late), without_records=late)


async def in_range(offsets: Mapping[Partition, int], lookup: Lookup) -> Plan:
    """The offsets, each moved to the nearest one that its log has."""
    starts, ends = await lookup.earliest(list(offsets)), await lookup.latest(list(offsets))
    plan = Plan({})
    for where, offset in offsets.items():
        found = plan.offsets[where] = min(max(offset, starts[where]), ends[where])
        if found != offset:
            plan.out_of_range[where] = offset, starts[where], ends[where]
    return plan
