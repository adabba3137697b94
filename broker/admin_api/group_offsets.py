"""Resets of a group's committed offsets, and the deletion of a group, over the broker's own state.

The scenarios are those of `broker/groups/resets.py`, which `ottla groups` uses as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ..errors import Refused
from ..groups import resets
from ..groups.offsets import CommittedOffset, Partition
from .views import GroupReset, ResetOffset

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..groups.resets import NewOffsets, Reset

AT_ONCE = 200  # partitions that are looked up before the event loop serves clients again


async def _looked_up(state: BrokerState, wanted: Collection[Partition], time: int) -> NewOffsets:
    """Looks offsets up in the logs of a state, see `resets.Lookup`."""
    found: NewOffsets = {}
    for number, place in enumerate(wanted, 1):
        log = state.topics.partition(*place).log
        if time == resets.LOG_START:
            found[place] = log.log_start_offset
        elif time == resets.LOG_END:
            found[place] = log.high_watermark
        else:
            by_time = log.find_timestamp(time)
            found[place] = by_time.offset if by_time is not None and by_time.offset < log.high_watermark else -1
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
    return found


async def reset(
    state: BrokerState,
    group_id: str,
    wanted: Reset,
    of: Iterable[tuple[str, int | None]] | None,
    *,
    dry_run: bool,
) -> GroupReset:
    """Resets offsets, see `Operations.reset_offsets`. Raises Refused, StorageError."""
    _check_inactive(state, group_id)
    committed = {place: one.offset for place, one in state.groups.offsets(group_id).items()}
    chosen = sorted(committed) if of is None else _places(state, of)
    try:
        plan = await resets.planned(wanted, chosen, committed, partial(_looked_up, state))
    except resets.CannotReset as error:
        raise Refused(ErrorCode.INVALID_REQUEST, f"INVALID_REQUEST: {error}") from None
    offsets: list[ResetOffset] = []
    for place, after in sorted(plan.offsets.items()):
        log = state.topics.partition(*place).log
        wanted_and_set = plan.out_of_range.get(place)
        limits = log.log_start_offset, log.high_watermark
        out_of_range = None if wanted_and_set is None else wanted_and_set[0]
        offsets.append(ResetOffset(*place, committed.get(place), after, *limits, out_of_range))
    if not dry_run:
        _check_inactive(state, group_id)  # a member may have joined while timestamps were looked up
        await _commit(state, group_id, plan.offsets)
    return GroupReset(group_id, not dry_run, tuple(offsets))


def _check_inactive(state: BrokerState, group_id: str) -> None:
    group = state.groups.group(group_id)
    try:
        resets.check_inactive(group_id, "Dead" if group is None else group.state.value)
    except resets.CannotReset as error:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"NON_EMPTY_GROUP: {error}") from None


def _places(state: BrokerState, of: Iterable[tuple[str, int | None]]) -> list[Partition]:
    """Returns the named partitions, each once. Raises Refused."""
    found: dict[Partition, None] = {}
    for name, index in of:
        topic = state.topics.named(name)
        if index is not None and not state.topics.has_partition(name, index):
            text = f'UNKNOWN_TOPIC_OR_PARTITION: The partitions "{name}-{index}" do not exist'
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        found |= dict.fromkeys((name, n) for n in (range(len(topic.partitions)) if index is None else [index]))
    return sorted(found)


async def _commit(state: BrokerState, group_id: str, offsets: NewOffsets) -> None:
    now_ms = state.clock.now_ms()
    commits = [(place, CommittedOffset(offset, commit_timestamp_ms=now_ms)) for place, offset in offsets.items()]
    if not commits:
        return
    code = state.groups.commit(group_id, member_id="", instance_id=None, generation_id=-1, commits=commits)
    code = code or await state.group_records_durable(group_id)
    if code is not ErrorCode.NONE:
        raise Refused(code, f"{code.name}: the offsets of group {group_id} were not reset")


async def delete(state: BrokerState, group_id: str) -> None:
    """Deletes a group with its offsets. Raises Refused."""
    code = state.groups.delete(group_id)
    code = code or await state.group_records_durable(group_id)
    if code is not ErrorCode.NONE:
        reason = "; it still has members" if code is ErrorCode.NON_EMPTY_GROUP else ""
        raise Refused(code, f"{code.name}: group {group_id} was not deleted{reason}")
