"""Manual replica assignments, checked as by a KRaft controller or by a broker with ZooKeeper.

Owns the texts of the refusals, which differ between the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ....protocol.errors import ErrorCode
from ...context import RequestContext
from ...errors import Refused

Replicas = Sequence[int]


def check_new(given: Sequence[tuple[int, Replicas]], context: RequestContext) -> list[list[int]]:
    """Returns the replicas of each partition of a new topic, from the given (partition, replicas). Raises Refused."""
    assigned = dict(given)
    as_kraft = context.broker.profile.behaviour.topics_as_kraft
    if as_kraft:
        twice = [index for index, times in Counter(index for index, _ in given).items() if times > 1]
        if twice:
            raise _refused(f"Found multiple manual partition assignments for partition {twice[0]}")
        _check_as_kraft(assigned, None, context)
    elif len({len(replicas) for replicas in assigned.values()}) != 1:
        raise _refused("All partitions should have the same number of replicas")
    else:
        for replicas in assigned.values():
            if len(set(replicas)) < len(replicas):
                shown = {index: f"ArrayBuffer({_listed(replicas)})" for index, replicas in sorted(assigned.items())}
                listed = ", ".join(f"{index} -> {text}" for index, text in shown.items())
                raise _refused(f"Duplicate replica assignment found: Map({listed})")
    if sorted(assigned) != list(range(len(assigned))):
        raise _refused("partitions should be a consecutive 0-based integer sequence")
    for replicas in () if as_kraft else assigned.values():
        # Kafka with ZooKeeper creates offline replicas on nodes that do not exist, and partitions that no node could
        # lead. The latter are refused here.
        if not replicas or min(replicas) < 0:
            raise _refused(f"The manual partition assignment includes {context.broker.nodes.problem_of(replicas)}")
    return [list(assigned[index]) for index in range(len(assigned))]


def check_more(first: int, given: Sequence[Replicas], factor: int | None, context: RequestContext) -> None:
    """Checks the replicas of new partitions from `first` on; `factor` is the replication factor of the others. Raises
    Refused.
    """
    assigned = dict(enumerate(given, first))
    if not context.broker.profile.behaviour.topics_as_kraft:
        for index, replicas in assigned.items():
            if not replicas:
                raise _refused(f"Cannot have replication factor of 0 for partition id {index}.")
            if len(set(replicas)) < len(replicas):
                found = f"{_listed(replicas)} for partition id {index}"
                raise _refused(f"Duplicate brokers not allowed in replica assignment: {found}.")
            unknown = sorted(set(replicas).difference(context.broker.nodes.ids))
            if unknown:
                raise _refused(f"Unknown broker(s) in replica assignment: {_listed(unknown)}.")
        odd = {index: len(replicas) for index, replicas in assigned.items() if factor not in (None, len(replicas))}
        if odd:
            raise _refused(
                f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
                f"[{_listed(odd)}] have replication factors [{_listed(odd.values())}], respectively."
            )
    _check_as_kraft(assigned, factor, context)


def _check_as_kraft(assigned: Mapping[int, Replicas], factor: int | None, context: RequestContext) -> None:
    nodes = context.broker.nodes
    for index, replicas in assigned.items():
        problem = nodes.problem_of(replicas)
        if problem is None and factor not in (None, len(replicas)):
            problem = (
                f"a partition with {len(replicas)} replica(s), but this is not consistent with previous partitions, "
                f"which have {factor} replica(s)."
            )
        if problem:
            raise _refused(f"The manual partition assignment includes {problem}")
        factor = len(replicas)
        if nodes.is_cluster and nodes.stopped.issuperset(replicas):
            raise _refused(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )


def _listed(numbers: object) -> str:
    return ", ".join(map(str, numbers))  # type: ignore[call-overload]


def _refused(problem: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
