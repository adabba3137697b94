"""What can be decided only with the whole history: lost, torn, skipped, or aborted and read."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

from ottla_testing.history.facts import (
    ABORTED,
    ABORTED_READ,
    ACKED,
    BACKWARD_SEND,
    COMMITTED,
    EARLY_READ,
    FAILED_READ,
    FOUND,
    LOST,
    NOWHERE,
    OWN_READ,
    READ,
    SEEN,
    TORN,
    TWICE,
    UNKNOWN,
    UNPROCESSED,
    UNSEEN,
    VISIBLE,
    Transaction,
)
from ottla_testing.history.follower import Follower


def judge(follower: Follower) -> None:
    """Adds violations to the follower's report."""
    fates = [txn.fate for txn in follower.txns]
    for fate in fates:
        follower.report.counts[f"transactions: {fate}"] += 1
    _values(follower, fates)
    _order(follower)
    for txn, fate in zip(follower.txns, fates, strict=True):
        if fate != ABORTED:
            _wholeness(follower, txn, fate)
    _gaps(follower, fates)
    _processed(follower)


def _values(follower: Follower, fates: Sequence[str]) -> None:
    """Checks each value."""
    values = follower.values
    tops = [max((o for o, n in log.items() if values.flags[n] & FOUND), default=-1) for log in follower.logs]
    for number, flags in enumerate(values.flags):
        value, txn = values.value[number], values.txn[number]
        fate = COMMITTED if txn == NOWHERE else fates[txn]
        if flags & FOUND and values.sends[number] <= 0:
            follower.about(FAILED_READ, number, f"the send of {value} had definitely failed")
        elif flags & VISIBLE and fate == ABORTED:
            name = follower.txns[txn].name
            follower.about(ABORTED_READ, number, f"{value} is of {name}, which was not committed")
        elif number in follower.early:
            line, process = follower.early[number]
            own = process == follower.names[values.process[number]]
            evidence = f"{process} got {value} when {follower.txns[txn].name} was open"
            follower.about(OWN_READ if own else EARLY_READ, number, evidence, lines=[line])
        if flags & READ or values.place[number] not in follower.ends or fate == ABORTED:
            continue
        if flags & SEEN:
            follower.about(LOST, number, f"{value} was polled, but is missing at the end")
        elif flags & ACKED and fate == COMMITTED:
            offset = values.offset[number]
            if 0 <= offset < tops[values.place[number]]:
                follower.about(LOST, number, f"{value} was acknowledged, but is missing at the end")
            else:
                follower.about(UNSEEN, number, f"{value} was acknowledged, but never seen")


def _order(follower: Follower) -> None:
    """Checks that the acknowledged records of each process are in the order of sending, by partition."""
    values = follower.values
    last: dict[tuple[int, int], int] = {}
    for number, offset in enumerate(values.offset):
        if offset < 0 or not values.flags[number] & ACKED or values.sends[number] > 1:
            continue
        key = (values.process[number], values.place[number])
        before = last.get(key)
        if before is not None and values.offset[before] > offset:
            evidence = f"{follower.names[key[0]]} sent {values.value[before]} before {values.value[number]}"
            offsets, lines = (values.offset[before], offset), (*values.lines(before), *values.lines(number))
            follower.violate(BACKWARD_SEND, evidence, key[1], offsets, lines)
        else:
            last[key] = number


def _wholeness(follower: Follower, txn: Transaction, fate: str) -> None:
    """Checks that a transaction is visible as a whole; or not at all if its outcome is unknown."""
    values = follower.values
    sent = [n for n in txn.values if values.place[n] in follower.ends and values.sends[n] > 0]
    missing = [n for n in sent if not values.flags[n] & VISIBLE]
    is_partly_there = 0 < len(missing) < len(sent)
    is_unsaid = fate == COMMITTED and any(not values.flags[n] & ACKED for n in missing)  # otherwise they count as lost
    if is_partly_there or is_unsaid:
        there = [values.value[n] for n in sent if values.flags[n] & VISIBLE]
        wording = {COMMITTED: "committed", UNKNOWN: "of unknown outcome"}[fate]
        gone = [values.value[n] for n in missing]
        evidence = f"{txn.name}, {wording}: {there[:5]} are visible, {gone[:5]} are not"
        lines = (txn.line, txn.commit_line, txn.end_line)
        offsets = [values.offset[n] for n in missing[:5] if values.offset[n] >= 0]
        follower.violate(TORN, evidence, values.place[missing[0]], offsets, [line for line in lines if line])


def _gaps(follower: Follower, fates: Sequence[str]) -> None:
    """Checks what was skipped (skipping an aborted record is right)."""
    flags, txns = follower.values.flags, follower.values.txn
    aborted = {number for number, txn in enumerate(txns) if txn != NOWHERE and fates[txn] == ABORTED}
    offsets: dict[tuple[int, bool], list[int]] = {}
    for place, log in enumerate(follower.logs):
        for only, mask in ((True, VISIBLE), (False, FOUND)):
            offsets[place, only] = sorted(
                offset for offset, number in log.items() if flags[number] & mask and not (only and number in aborted)
            )
    for gap in follower.gaps:
        there = offsets[gap.place, gap.committed_only]
        index = bisect_left(there, gap.start)
        if index < len(there) and there[index] < gap.end:
            passed = there[index : bisect_left(there, gap.end)]
            number = follower.logs[gap.place][passed[0]]
            evidence = f"{gap.process} went from {gap.start} to {gap.end} over {len(passed)} records"
            evidence += f", the first of them {follower.values.value[number]}"
            lines = sorted({gap.line, *follower.values.lines(number)})
            follower.violate(gap.kind, evidence, gap.place, passed[:5], lines)


def _processed(follower: Follower) -> None:
    """Checks that each record was made into exactly one record of another topic."""
    values = follower.values
    topics = [partition.rpartition("-")[0] for partition in follower.partitions]
    made: dict[str, dict[int, int]] = defaultdict(dict)
    for number, source in enumerate(values.source):
        if source == NOWHERE or not values.flags[number] & VISIBLE:
            continue
        other = made[topics[values.place[number]]].setdefault(source, number)
        if other != number:
            evidence = f"{values.value[other]} and {values.value[number]} were both made from {source}"
            follower.about(TWICE, number, evidence, lines=values.lines(other))
    for source, target, line in follower.drained:
        for number, flags in enumerate(values.flags):
            if flags & READ and topics[values.place[number]] == source and values.value[number] not in made[target]:
                evidence = f"nothing in {target} was made from {values.value[number]}"
                follower.about(UNPROCESSED, number, evidence, lines=[line])
