"""Draws the state machines of groups and transactions from their tables.

    .venv/bin/python docs/machines.py

Feeds events to `advance` or `decide` of each machine, breadth first from the initial state, and records which state
follows which. Writes `docs/assets/NAME.svg` for each machine and their tables in `docs/snippets/machines/`. A test
(`tests/docs/test_machines.py`) fails while the committed files differ from what this script makes.
"""

from __future__ import annotations

import copy
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from ottla.broker.groups import common_events as common
from ottla.broker.groups.classic import machine as groups
from ottla.broker.groups.classic import state as group
from ottla.broker.groups.common_state import GroupState
from ottla.broker.groups.consumer import events as consumer
from ottla.broker.groups.consumer import machine as consumer_machine
from ottla.broker.groups.consumer.state import Group as ConsumerGroup
from ottla.broker.groups.share import events as share
from ottla.broker.groups.share import machine as share_machine
from ottla.broker.groups.share.state import Group as ShareGroup
from ottla.broker.groups.streams import events as streams
from ottla.broker.groups.streams import machine as streams_machine
from ottla.broker.groups.streams.state import Group as StreamsGroup
from ottla.broker.groups.streams.values import NOTHING, Subtopology, Topology
from ottla.broker.groups.topics import TopicLookup, TopicShape
from ottla.broker.transactions import moves
from ottla.broker.transactions import state as transaction
from ottla.broker.transactions import table as transactions
from ottla.broker.transactions.settings import TransactionSettings
from ottla.protocol.errors import ErrorCode

DOCS = Path(__file__).parent
ASSETS = DOCS / "assets"
TABLES = DOCS / "snippets" / "machines"

Edges = dict[tuple[Any, type], set[Any]]
"""(state, event) -> the states that follow."""

# --- groups ----------------------------------------------------------------------------------------------------------

MAX_GENERATION = 3  # later ones only repeat
MAX_MEMBERS = 2
PROTOCOLS = (("range", b""),)


def group_edges() -> Edges:
    """The transitions of a group with at most two members, dynamic and static ones."""
    settings = group.GroupSettings()
    edges: Edges = defaultdict(set)
    start = group.Group("g")
    seen, waiting = {repr(start)}, deque([start])

    def feed(before: group.Group, event: Any) -> None:
        after, effects = groups.advance(before, event, now_ms=0, settings=settings)
        edges[before.state, type(event)].add(after.state)
        writes = [effect for effect in effects if isinstance(effect, group.Persist)]
        for write in writes:  # the outcome comes before any other event
            feed(after, group.Persisted(write))
            feed(after, group.PersistFailed(write, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if not writes and repr(after) not in seen and after.generation_id <= MAX_GENERATION:
            seen.add(repr(after))
            waiting.append(after)

    while waiting:
        at = waiting.popleft()
        for event in group_events(at):
            feed(at, event)
    return edges


def group_events(at: group.Group) -> Iterator[Any]:
    """Each event of a group that its present members, and a new one, can cause."""
    members = list(at.members.values())
    if len(members) < MAX_MEMBERS:
        yield join(f"m{len(members)}")
        yield join(f"m{len(members)}", requires_member_id=True)
        yield join(f"m{len(members)}", instance_id="i")
    for pending in sorted(at.pending):
        yield join("new", member_id=pending)
        yield group.PendingExpired(pending)
    for member in members:
        name, instance = member.member_id, member.instance_id
        yield join("new", member_id=name, instance_id=instance)
        shares = tuple((other.member_id, b"p") for other in members) if name == at.leader else ()
        yield group.Sync(1, name, instance, at.generation_id, assignments=shares)
        yield group.Heartbeat(1, name, instance, at.generation_id)
        yield group.Leave(1, ((name, instance),))
        yield group.Commit(1, name, instance, at.generation_id)
        yield group.SessionExpired(name)
    yield group.Sync(1, "stranger", None, at.generation_id)
    yield group.Heartbeat(1, "stranger", None, at.generation_id)
    yield group.Leave(1, (("stranger", None),))
    yield group.Commit(1, "", None, -1)
    yield group.Delete(1)
    yield group.Delete(None, only_if_unused=True)
    yield from (group.Loaded(), group.RebalanceDue(), group.SyncDue(), group.SessionExpired("stranger"))


def join(new_id: str, *, member_id: str = "", instance_id: str | None = None, **more: Any) -> Any:
    request = group.JoinRequest(member_id, instance_id, "c", "/h", 10_000, 60_000, "consumer", PROTOCOLS, **more)
    return group.Join(1, new_id, request)


# --- groups whose assignments the broker computes --------------------------------------------------------------------

LATE_ENOUGH_MS = 100_000  # beyond the interval between two assignments, and every delay
MAX_GROUP_EPOCH = 3  # later ones only repeat, but in a streams group
MAX_STREAMS_EPOCH = 4
TOPIC_ID = bytes(16)
TOPIC = TopicShape(TOPIC_ID, "t", 2)
CLASSIC = {consumer.ClassicJoin, consumer.ClassicSync, consumer.ClassicHeartbeat, consumer.ClassicLeave}
CLASSIC |= {consumer.JoinOverdue, consumer.SyncOverdue}
"""Events of members of the classic protocol, in a group that migrates."""
Decide = Callable[[Any, Any, int], Any]
"""(group, event, time) -> decision."""


def decided_edges(
    start: Any,
    decide: Decide,
    events: Callable[[Any], Iterable[Any]],
    dead: Any,
    last_epoch: int = MAX_GROUP_EPOCH,
) -> Edges:
    """The transitions of a group that changes by decisions. Each event comes right after the last assignment, and
    late. Groups differ by all but the time of that, the last check of the metadata, and what they compute.
    """
    edges: Edges = defaultdict(set)
    unlike = {"assigned_ms", "checked", "configured"}

    def key(group: Any) -> str:
        return repr(sorted((name, value) for name, value in vars(group).items() if name not in unlike))

    seen, waiting = {key(start)}, deque([start])
    while waiting:
        at = waiting.popleft()
        for event in events(at):
            for now_ms in (at.assigned_ms + 1, at.assigned_ms + LATE_ENOUGH_MS):
                decision = decide(at, event, now_ms)
                after = copied(at) if decision.changes else at
                for change in decision.changes:
                    after.apply(change)
                is_gone = any(type(effect).__name__ in ("Forget", "BecomeClassic") for effect in decision.effects)
                is_gone |= any(type(one).__name__ == "EpochSet" and one.epoch is None for one in decision.changes)
                edges[at.state, type(event)].add(dead if is_gone else after.state)
                if decision.changes and not is_gone and after.epoch <= last_epoch and (name := key(after)) not in seen:
                    seen.add(name)
                    waiting.append(after)
    return edges


def copied(group: Any) -> Any:
    """A copy of a group. Only its mappings and sets, and those in its mappings, change in place."""
    made = copy.copy(group)
    for name, value in vars(made).items():
        if isinstance(value, dict):
            inner = {key: copy.copy(one) if isinstance(one, dict | set) else one for key, one in value.items()}
            setattr(made, name, inner)
        elif isinstance(value, set):
            setattr(made, name, set(value))
    return made


LOOKUP = TopicLookup(
    has_partition=lambda name, index: name == "t" and index < TOPIC.partitions,
    name_of=lambda topic_id: "t" if topic_id == TOPIC_ID else None,
    id_of=lambda name: TOPIC_ID if name == "t" else None,
    shape_of=lambda name: TOPIC if name == "t" else None,
    names=lambda: ["t"],
)


def consumer_edges() -> Edges:
    """The transitions of a consumer group (KIP-848) with at most two members and a topic of two partitions."""
    settings = consumer.Settings()

    def decide(group: ConsumerGroup, event: Any, now_ms: int) -> Any:
        return consumer_machine.decide(group, event, now_ms=now_ms, settings=settings, topics=LOOKUP)

    return decided_edges(ConsumerGroup("g", 1), decide, consumer_events, GroupState.DEAD)


def consumer_events(at: ConsumerGroup) -> Iterator[Any]:
    if len(at.members) < MAX_MEMBERS:
        joining = consumer.MemberHeartbeat(
            f"m{len(at.members)}", 0, rebalance_timeout_ms=1000, topics=frozenset("t"), owned={}
        )
        yield joining
    for name, member in at.members.items():
        owned = {topic: frozenset(indexes) for topic, indexes in member.current.assigned.items()}
        for topics in (None, frozenset[str]()):
            request = consumer.MemberHeartbeat(name, member.current.epoch, topics=topics, owned=owned)
            yield request
        yield common.MemberLeave(name)
        yield from (common.SessionExpired(name), common.RevocationOverdue(name))
    yield common.MemberLeave("stranger")
    yield from (consumer.RegexesResolved({}), common.Delete(), common.Loaded())


def share_edges() -> Edges:
    """The transitions of a share group (KIP-932) with at most two members."""
    settings = share.Settings()

    def decide(group: ShareGroup, event: Any, now_ms: int) -> Any:
        return share_machine.decide(group, event, now_ms=now_ms, settings=settings, topics=LOOKUP)

    return decided_edges(ShareGroup("g"), decide, share_events, GroupState.DEAD)


def share_events(at: ShareGroup) -> Iterator[Any]:
    if len(at.members) < MAX_MEMBERS:
        yield share.Heartbeat(f"m{len(at.members)}", 0, topics=frozenset("t"))
    for name, member in at.members.items():
        yield share.Heartbeat(name, member.current.epoch)
        yield from (common.MemberLeave(name), common.SessionExpired(name))
    yield from (common.MemberLeave("stranger"), common.SessionExpired("stranger"))
    both = {TOPIC_ID: frozenset(range(TOPIC.partitions))}
    yield from (share.StateInitialized(both), share.StateInitialized(both, failed=True))
    yield from (share.AlterOffsets({"t": {0: 3}}), share.DeleteOffsets(("t",)))
    yield from (share.OffsetsDeleted(frozenset({TOPIC_ID})), share.TopicDeleted(TOPIC_ID))
    yield from (share.DeleteGroup(), common.Loaded())


def streams_edges() -> Edges:
    """The transitions of a streams group (KIP-1071) with at most two members, whose topic is created and deleted."""
    settings = streams.Settings()
    known = {"t": TOPIC}

    def decide(group: StreamsGroup, event: Any, now_ms: int) -> Any:
        version = len(known)
        topics = replace(LOOKUP, shape_of=known.get, version=lambda: version)
        return streams_machine.decide(group, event, now_ms=now_ms, settings=settings, topics=topics)

    def events(at: StreamsGroup) -> Iterator[Any]:
        for shape in (None, TOPIC):
            known.clear()
            known.update({} if shape is None else {"t": shape})
            yield from streams_events(at)

    return decided_edges(StreamsGroup("g"), decide, events, GroupState.DEAD, MAX_STREAMS_EPOCH)


def streams_events(at: StreamsGroup) -> Iterator[Any]:
    topology = Topology(0, {"0": Subtopology("0", ("t",))})
    if len(at.members) < MAX_MEMBERS:
        name = f"m{len(at.members)}"
        yield streams.Heartbeat(name, 0, rebalance_timeout_ms=1000, topology=topology, owned=NOTHING, process_id=name)
    for name, member in at.members.items():
        yield streams.Heartbeat(name, member.current.epoch)
        yield streams.Heartbeat(name, member.current.epoch, owned=member.current.assigned.tasks)
        yield common.MemberLeave(name)
        yield from (common.SessionExpired(name), common.RevocationOverdue(name))
    yield common.MemberLeave("stranger")
    yield from (common.Delete(), common.Loaded(), streams.DelayOver())


# --- transactions ----------------------------------------------------------------------------------------------------

MAX_EPOCH = 3
PARTITIONS, OFFSETS = (("orders", 0),), (("__consumer_offsets", 0),)
LIMIT = 4000  # slots that are explored
LATE_MS = 30 * 24 * 60 * 60 * 1000  # beyond every time-out and expiration


def transaction_edges() -> Edges:
    """The transitions of a transactional id. What an event writes is the next state, once the write succeeds."""
    settings = TransactionSettings()
    edges: Edges = defaultdict(set)
    start = transaction.Slot("t")
    seen, waiting = {start}, deque([start])

    def visit(slot: transaction.Slot) -> None:
        settled = slot.settled
        if slot not in seen and (settled is None or settled.producer_epoch <= MAX_EPOCH) and len(seen) < LIMIT:
            seen.add(slot)
            waiting.append(slot)

    def feed(before: transaction.Slot, event: Any) -> None:
        now_ms = LATE_MS if isinstance(event, transaction.TimeOut | transaction.Expire) else 0
        after, effects = transactions.advance(before, event, now_ms=now_ms, settings=settings)
        follows = after.state
        for effect in effects:
            if isinstance(effect, transaction.Append) and not isinstance(event, transaction.Appended):
                follows = effect.written.state if effect.written else moves.DEAD
        edges[before.state, type(event)].add(follows)
        visit(after)

    while waiting:
        at = waiting.popleft()
        for event in transaction_events(at):
            feed(at, event)
    return edges


def transaction_events(at: transaction.Slot) -> Iterator[Any]:
    """Each event of an id that its owner, a successor and the coordinator can cause."""
    settled = at.settled
    owner = (settled.producer_id, settled.producer_epoch) if settled else (7, 0)
    yield transaction.InitProducerId(1, 60_000, new_producer_id=7)
    yield transaction.InitProducerId(1, 60_000, *owner, new_producer_id=7)
    for version in (0, 2):
        for partitions in (PARTITIONS, OFFSETS):
            yield transaction.AddPartitions(1, *owner, partitions, version)
        for committed in (True, False):
            yield transaction.EndTxn(1, *owner, committed, version, 8)
    yield transaction.VerifyPartitions(1, *owner, PARTITIONS)
    yield from (transaction.TimeOut(8), transaction.Expire(), transaction.Loaded())
    if at.writing is not None:
        yield transaction.Appended(at.writing)
        yield transaction.AppendFailed(at.writing, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if settled is not None and at.phase is transaction.Phase.MARKING:
        committed = settled.state is moves.PREPARE_COMMIT
        markers = transaction.WriteMarkers("t", *owner, committed, settled.partitions, settled.client_version)
        yield transaction.MarkersWritten(markers)


# --- drawings --------------------------------------------------------------------------------------------------------

BOX = (176, 40)
LINE = 14  # between the lines of a label
BEND = 0.11  # how far an edge bows out for its length, so that edges of both directions stay apart
STYLE = """
  svg { font-family: sans-serif; font-size: 12px; }
  .paper { fill: #ffffff; stroke: #d0d7de; }
  .box { fill: #e0f2f1; stroke: #00796b; stroke-width: 1.5; }
  .state { font-size: 14px; font-weight: bold; text-anchor: middle; fill: #102a27; }
  .edge { fill: none; stroke: #607d8b; stroke-width: 1.5; marker-end: url(#arrow); }
  .under { fill: #ffffff; }
  .label { text-anchor: middle; fill: #263238; }
"""


@dataclass(frozen=True)
class Machine:
    """What is drawn of one machine. `places` has the centre of each state, `hidden` the events without an edge.

    `bends` are for edges that would otherwise cross a box.
    """

    name: str
    title: str
    found: Callable[[], Edges]
    table: Mapping[tuple[Any, type], Callable[..., None]]
    size: tuple[int, int]
    places: Mapping[str, tuple[int, int]]
    hidden: tuple[type, ...] = ()
    bends: Mapping[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])

    def edges(self) -> Edges:
        """The transitions; explored once."""
        return _explored(self.found)


@cache
def _explored(found: Callable[[], Edges]) -> Edges:
    return found()


MACHINES = (
    Machine(
        "groups",
        "States of a consumer group",
        group_edges,
        groups.TABLE,
        (1000, 620),
        {
            "Empty": (110, 250),
            "Dead": (110, 560),
            "PreparingRebalance": (480, 60),
            "CompletingRebalance": (480, 540),
            "Stable": (890, 300),
        },
    ),
    Machine(
        "consumer_groups",
        "States of a consumer group of KIP-848",
        consumer_edges,
        {cell: act for cell, act in consumer_machine.TABLE.items() if cell[1] not in CLASSIC},
        (1000, 620),
        {
            "Empty": (110, 250),
            "Dead": (110, 560),
            "Assigning": (480, 60),
            "Reconciling": (480, 540),
            "Stable": (890, 300),
        },
    ),
    Machine(
        "share_groups",
        "States of a share group",
        share_edges,
        share_machine.TABLE,
        (760, 260),
        {"Empty": (130, 130), "Stable": (630, 130)},
    ),
    Machine(
        "streams_groups",
        "States of a streams group",
        streams_edges,
        streams_machine.TABLE,
        (1110, 820),
        {
            "Dead": (110, 760),
            "Empty": (110, 420),
            "NotReady": (700, 60),
            "Assigning": (430, 440),
            "Reconciling": (700, 760),
            "Stable": (1000, 400),
        },
        (),
        {
            ("Stable", "Empty"): 0.16,
            ("NotReady", "Reconciling"): -0.03,
            ("Reconciling", "NotReady"): 0.12,
            ("NotReady", "Empty"): 0.16,
            ("Reconciling", "Empty"): -0.2,
        },
    ),
    Machine(
        "transactions",
        "States of a transactional id",
        transaction_edges,
        transactions.TABLE,
        (1110, 700),
        {
            "Dead": (110, 320),
            "Empty": (360, 320),
            "Ongoing": (620, 320),
            "CompleteCommit": (520, 50),
            "CompleteAbort": (430, 640),
            "PrepareCommit": (1000, 110),
            "PrepareAbort": (1000, 580),
        },
        (transaction.Appended, transaction.AppendFailed),
        {
            ("CompleteCommit", "PrepareAbort"): -0.14,
            ("Ongoing", "PrepareCommit"): 0.03,
            ("PrepareAbort", "CompleteAbort"): 0.02,
        },
    ),
)


def drawing(machine: Machine) -> str:
    """The SVG: boxes for states, an edge for each pair of states with the events that lead from one to the other."""
    width, height = machine.size
    pairs: dict[tuple[str, str], list[str]] = defaultdict(list)
    found = machine.edges()
    for before, kind in machine.table:
        for after in found.get((before, kind), ()):
            if after is not before and kind not in machine.hidden:
                pairs[before.value, after.value].append(kind.__name__)
    edges = [
        edge(machine.places[pair[0]], machine.places[pair[1]], names, machine.bends.get(pair, BEND))
        for pair, names in sorted(pairs.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            f"<title>{escape(machine.title)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
            'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="#607d8b"/></marker></defs>',
            f'<rect class="paper" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            *(line for line, _ in edges),
            *(label for _, label in edges),
            *(box(name, place) for name, place in machine.places.items()),
            "</svg>\n",
        ]
    )


def box(name: str, place: tuple[int, int]) -> str:
    (x, y), (w, h) = place, BOX
    return (
        f'<rect class="box" x="{x - w / 2:g}" y="{y - h / 2:g}" width="{w}" height="{h}" rx="8"/>'
        f'<text class="state" x="{x}" y="{y + 5}">{escape(name)}</text>'
    )


def edge(start: tuple[int, int], end: tuple[int, int], names: list[str], bend: float) -> tuple[str, str]:
    """The curve and its label."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    middle = ((start[0] + end[0]) / 2 - dy * bend * 2, (start[1] + end[1]) / 2 + dx * bend * 2)
    (x1, y1), (x2, y2) = border(start, middle), border(end, middle)
    line = f'<path class="edge" d="M{x1:.0f},{y1:.0f} Q{middle[0]:.0f},{middle[1]:.0f} {x2:.0f},{y2:.0f}"/>'
    x, y = (x1 + 2 * middle[0] + x2) / 4, (y1 + 2 * middle[1] + y2) / 4
    top = y - LINE * len(names) / 2
    wide = 6.4 * max(map(len, names))
    texts = "".join(
        f'<text class="label" x="{x:.0f}" y="{top + LINE * (number + 0.8):.0f}">{escape(name)}</text>'
        for number, name in enumerate(names)
    )
    under = (
        f'<rect class="under" x="{x - wide / 2:.0f}" y="{top:.0f}" width="{wide:.0f}" height="{LINE * len(names)}"/>'
    )
    return line, under + texts


def border(place: tuple[int, int], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the straight line from a state's centre leaves its box."""
    dx, dy = towards[0] - place[0], towards[1] - place[1]
    share = min(BOX[0] / 2 / abs(dx) if dx else 9e9, BOX[1] / 2 / abs(dy) if dy else 9e9)
    return place[0] + dx * share, place[1] + dy * share


def table(machine: Machine) -> str:
    """The transitions in Markdown: a row for each event, a column for each state."""
    states = list(dict.fromkeys(state for state, _ in machine.table))
    kinds = list(dict.fromkeys(kind for _, kind in machine.table))
    found = machine.edges()
    rows = ["| event | " + " | ".join(state.value for state in states) + " |", "|---" * (len(states) + 1) + "|"]
    for kind in kinds:
        cells = (cell(machine, found, state, kind, states) for state in states)
        rows.append(f"| `{kind.__name__}` | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def cell(machine: Machine, found: Edges, state: Any, kind: type, states: Iterable[Any]) -> str:
    if machine.table[state, kind].__name__ in ("_nothing", "nothing") or (state, kind) not in found:
        return "–"
    after = found[state, kind]
    names = ["stays"] if state in after else []
    others = [*states, *sorted(after - set(states), key=lambda other: other.value)]
    return ", ".join([*names, *(f"**{other.value}**" for other in others if other in after and other is not state)])


def files() -> dict[Path, str]:
    """Everything that this script makes."""
    drawings = {ASSETS / f"{machine.name}.svg": drawing(machine) for machine in MACHINES}
    return drawings | {TABLES / f"{machine.name}.md": table(machine) for machine in MACHINES}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
