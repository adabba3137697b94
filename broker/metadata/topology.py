"""Changes of leaders and nodes on command: moves leaders, takes partitions offline, stops and starts nodes.

Owns the changes; `nodes.py` has the rules and `topics.py` writes the records. A change is durable before it is visible;
then delayed requests on the partitions are completed, and coordinators follow the leaders of their partitions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple
from ...storage.errors import StorageError
from ..errors import Refused
from ..logs import get_logger
from ..replica.assignment import NO_LEADER, Assignment
from ..replica.purgatory import wake_all
from .nodes import Nodes
from .replica_copies import ReplicaCopies

if TYPE_CHECKING:
    from ..clock import Clock, Timer
    from ..config.values import Config, TopicConfig
    from ..replica.partition import Partition
    from .topics import Topics


class TopologyError(ValueError):
    """An impossible change, for example of an unknown node or partition. The message is one line."""


@frozen
class NodeView:
    """A node with the address of its first listener."""

    id: int
    host: str
    port: int
    running: bool


@frozen
class PartitionView:
    """The leader and replicas of a partition; the leader is -1 if there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@frozen
class TopologyView:
    """All nodes, and all partitions by topic and index."""

    nodes: tuple[NodeView, ...]
    partitions: tuple[PartitionView, ...]


class TopologyNote(NamedTuple):
    """State outside the metadata log: stopped nodes, partitions taken offline as (topic, index), unregistered nodes."""

    stopped: frozenset[int] = frozenset()
    offline: frozenset[tuple[str, int]] = frozenset()
    unregistered: frozenset[int] = frozenset()


NOTHING_NOTED = TopologyNote()
REASSIGNMENT_MS = 100
"""Duration of a reassignment whose new replicas run, without a throttle. In Kafka it takes as long as copying; tools
and admin clients that list reassignments right afterwards expect to see it.
"""
UNKNOWN = 1 << 63  # log end offset of a log that no longer exists: higher than any


class Topology:
    """Nodes and leaders of one broker. All methods must be called on its event loop."""

    def __init__(
        self,
        nodes: Nodes,
        topics: Topics,
        config: Config,
        clock: Clock,
        waits: Clock,
        address: Callable[[int], tuple[str, int]],
    ) -> None:
        """`waits` is the clock of REASSIGNMENT_MS, which passes even if the broker's `clock` is stopped. `address`
        returns the address of a node's first listener.
        """
        self.nodes = nodes
        self._topics = topics
        self._clock = clock
        self._waits = waits
        self._copies = ReplicaCopies(nodes, config, self._config_of, clock)
        self._settling: dict[Partition, Timer] = {}  # by REASSIGNMENT_MS
        self._next: Timer | None = None  # the next check of the copies
        self._address = address
        self.on_leader: Callable[[Partition], None] = lambda partition: None
        """Called after startup with each partition whose leader changed."""
        self.on_node: Callable[[int, bool], None] = lambda node_id, is_running: None
        """Called with a node that stopped or started; set by the owner of its sockets."""
        self._known_epochs: dict[tuple[bytes, int], int] = {}  # highest known to clients

    def begin(self, note: TopologyNote) -> None:
        """Restores the state in `note` at startup and replaces leaders that are unavailable. Raises StorageError."""
        self.nodes.stopped.update(node for node in note.stopped if node in self.nodes.ids)
        self.nodes.unregistered.update(note.unregistered & self.nodes.stopped)
        for partition in self._partitions():
            partition.is_held = (partition.topic, partition.index) in note.offline
        going_on = [partition for partition in self._partitions() if partition.assignment.is_reassigned]
        self._settle(going_on)
        for partition in going_on:
            self._copies.follow(partition)
        if self.nodes.is_cluster or note.offline:
            self._elect(self._partitions())

    def continue_after(self, earlier: Topology) -> None:
        """Continues after another state, whose data may be older or newer. Raises StorageError.

        Clients ignore a leader with an older epoch than the one they have seen, so epochs continue above those. A
        partition whose log is shorter now gets a new epoch as well, so that consumers detect the truncation (KIP-320).
        """
        self._known_epochs = epochs = earlier._known_epochs
        ends: dict[tuple[bytes, int], int] = {}
        for key, partition in earlier._by_id():
            if partition.leader_epoch:
                epochs[key] = max(epochs.get(key, 0), partition.leader_epoch)
            ends[key] = UNKNOWN if partition.offline is not None else partition.log.log_end_offset
        changes: list[tuple[Partition, Assignment]] = []
        for key, partition in self._by_id():
            now = partition.assignment
            is_cut = partition.offline is None and partition.log.log_end_offset < ends.get(key, UNKNOWN)
            if is_cut or epochs.get(key, 0) > now.leader_epoch:
                epoch = max(epochs.get(key, 0), now.leader_epoch) + 1
                changes.append((partition, now._replace(leader_epoch=epoch, partition_epoch=now.partition_epoch + 1)))
        self._change(changes)

    def note(self) -> TopologyNote:
        """Returns the state that `begin` needs to start again on the same data."""
        held = ((one.topic, one.index) for one in self._partitions() if one.is_held)
        return TopologyNote(frozenset(self.nodes.stopped), frozenset(held), frozenset(self.nodes.unregistered))

    # --- changes

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Makes another in-sync replica the leader. Raises TopologyError or StorageError."""
        moved = self._found(topic, partition)
        self._check_node(node_id)
        now = moved.assignment
        if node_id not in now.replicas:
            raise TopologyError(f"node {node_id} has no replica of {topic}-{partition}, only {list(now.replicas)} have")
        if moved.is_held:
            raise TopologyError(f"{topic}-{partition} is offline: bring it online first")
        if node_id in self.nodes.stopped or node_id not in now.isr:  # the last in sync stays so when it stops
            problem = "is stopped" if node_id in self.nodes.stopped else "is not in sync"
            raise TopologyError(f"node {node_id} cannot lead {topic}-{partition}: it {problem}")
        self._change([(moved, now.next(node_id, now.isr))])

    def take_offline(self, topic: str, partition: int) -> None:
        """Leaves a partition without a leader until `bring_online`. Raises TopologyError or StorageError."""
        self._hold(self._found(topic, partition), True)

    def bring_online(self, topic: str, partition: int) -> None:
        """Reverts `take_offline`: an in-sync replica becomes the leader. Raises TopologyError or StorageError."""
        self._hold(self._found(topic, partition), False)

    def stop_node(self, node_id: int) -> None:
        """Stops a node: other in-sync replicas take over its leaders, its listeners refuse and its connections close.
        Raises TopologyError or StorageError.
        """
        self._check_node(node_id)
        self._elect_with(self.nodes.stopped | {node_id})
        self.on_node(node_id, False)

    def start_node(self, node_id: int) -> None:
        """Starts a node: its replicas are in sync at once; it leads only partitions without another leader. Raises
        TopologyError or StorageError.
        """
        self._check_node(node_id)
        self._elect_with(self.nodes.stopped - {node_id})
        self.nodes.unregistered.discard(node_id)
        self.on_node(node_id, True)

    def _elect_with(self, stopped: set[int]) -> None:
        """Sets the stopped nodes and elects leaders; after an error the same nodes as before are stopped."""
        before, self.nodes.stopped = self.nodes.stopped, stopped
        try:
            self._elect(self._partitions())
        except Exception:
            self.nodes.stopped = before
            raise

    def spread_leaders(self) -> None:
        """Makes the preferred replica the leader of every partition, if it runs. Raises StorageError."""
        self.balance()

    def elected(self, partition: Partition, *, unclean: bool) -> Assignment:
        """Returns the assignment after an election of the preferred replica or, with `unclean`, of any running replica,
        for `change` (KIP-460). Raises Refused if the partition has such a leader already, or none is available.
        """
        now = partition.assignment
        leader = NO_LEADER if partition.offline is not None else now.leader
        if leader != NO_LEADER and (unclean or leader == now.replicas[0]):
            raise Refused(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        can_lead = not partition.is_held and partition.offline is None
        made = now
        if unclean and can_lead:
            least = self._topics.eligible_below(partition.topic)
            made = self.nodes.elected(now, is_held=False, unclean=True, least=least)
        elif can_lead and now.replicas[0] in now.isr and now.replicas[0] not in self.nodes.stopped:
            made = now.next(now.replicas[0], now.isr)
        if made.leader != leader:
            return made
        if unclean:
            raise Refused(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
            )
        raise Refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")

    def reassigned(self, partition: Partition, replicas: Sequence[int] | None) -> Assignment:
        """Returns the assignment with these replicas; None cancels a reassignment (KIP-455). Raises Refused."""
        now, is_held = partition.assignment, partition.is_held
        least = self._topics.eligible_below(partition.topic)
        if replicas is not None:
            if problem := self.nodes.problem_of(replicas):
                raise Refused(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}"
                )
            return self.nodes.reassigned(now, replicas, is_held=is_held, least=least)
        if not now.is_reassigned:
            raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        unclean = self._topics.named(partition.topic).config["unclean.leader.election.enable"]
        made = self.nodes.reverted(now, is_held=is_held, unclean=unclean, least=least)
        if made is None:
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {partition.topic}:{partition.index} because it would "
                "require an unclean leader election.",
            )
        return made

    def change(self, wanted: Sequence[tuple[Partition, Assignment]]) -> None:
        """Applies assignments from `elected` and `reassigned`, all at once. The replicas of reassignments catch up
        after REASSIGNMENT_MS at the earliest. Raises StorageError.
        """
        begun = [partition for partition, made in wanted if made.is_reassigned and made != partition.assignment]
        self._settle(begun)
        self._change(wanted)

    def clear_eligible(self, topic: str | None = None) -> None:
        """Removes the eligible leader replicas and last known leaders of a topic, or of all, as Kafka does when
        min.insync.replicas changes. Raises StorageError.
        """
        found = [one for one in self._partitions() if topic in (None, one.topic)]
        self._change(
            [(one, one.assignment.after(one.assignment._replace(eligible=(), last_known=()))) for one in found]
        )

    def close(self) -> None:
        """Cancels the timers of reassignments, which continue after the next start."""
        for timer in (*self._settling.values(), self._next):
            if timer is not None:
                timer.cancel()
        self._settling.clear()
        self._next = None

    def _settle(self, begun: Sequence[Partition]) -> None:
        if begun:
            self._copies.hold(begun)
            timer = self._waits.call_at(self._waits.now_ms() + REASSIGNMENT_MS, lambda: self._settled(begun, timer))
            self._settling |= dict.fromkeys(begun, timer)

    def _settled(self, begun: Sequence[Partition], timer: Timer) -> None:
        settled = [one for one in begun if self._settling.get(one) is timer]  # not reassigned again since
        for partition in settled:
            del self._settling[partition]
        self._copies.release(settled)
        self.catch_up()

    def catch_up(self) -> None:
        """Lets the replicas that have caught up join the ISR, which may complete reassignments.

        Called after each change of what the copies depend on: leaders, nodes, throttles.
        """
        try:
            while caught_up := self._copies.caught_up():
                changes: list[tuple[Partition, Assignment]] = []
                for partition, nodes in caught_up.items():
                    least = self._topics.eligible_below(partition.topic)
                    changes.append((partition, self.nodes.joined(partition.assignment, nodes, least=least)))
                self._apply(changes)
        except StorageError as error:
            get_logger().error("partition reassignment not completed", reason=str(error))
        if self._next is not None:
            self._next.cancel()
        next_ms = self._copies.next_ms()
        self._next = None if next_ms is None else self._clock.call_at(next_ms, self.catch_up)

    def _config_of(self, partition: Partition) -> TopicConfig | None:
        key = partition.topic, partition.index
        if not self._topics.has_partition(*key) or self._topics.partition(*key) is not partition:
            return None
        return self._topics.named(partition.topic).config

    def imbalanced(self, percentage: int | None) -> list[Partition]:
        """Returns the partitions that are not led by their available preferred replica; with a percentage, only those
        of nodes for which more of them than that are led by other nodes.
        """
        found = [
            one
            for one in self._partitions()
            if one.offline is None
            and not one.is_held
            and one.leader not in (NO_LEADER, one.replicas[0])
            and one.replicas[0] in one.isr
            and one.replicas[0] not in self.nodes.stopped
        ]
        if percentage is None or not found:
            return found
        preferred = Counter(one.replicas[0] for one in self._partitions())
        elsewhere = Counter(one.replicas[0] for one in found)
        return [one for one in found if elsewhere[one.replicas[0]] * 100 > percentage * preferred[one.replicas[0]]]

    def balance(self, percentage: int | None = None) -> None:
        """Makes preferred replicas the leaders. Raises StorageError."""
        self._change([(one, one.assignment.next(one.replicas[0], one.isr)) for one in self.imbalanced(percentage)])

    def describe(self) -> TopologyView:
        """Returns the current nodes and partitions."""
        partitions = (
            PartitionView(
                one.topic,
                one.index,
                NO_LEADER if one.offline is not None else one.leader,
                one.leader_epoch,
                one.replicas,
                one.isr,
            )
            for one in self._partitions()
        )
        return TopologyView(self.node_views(), tuple(sorted(partitions, key=lambda one: (one.topic, one.partition))))

    def node_views(self) -> tuple[NodeView, ...]:
        """Returns the nodes only."""
        return tuple(NodeView(id, *self._address(id), id not in self.nodes.stopped) for id in self.nodes.ids)

    # --- helpers

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self._topics for partition in topic.partitions]

    def _by_id(self) -> Iterator[tuple[tuple[bytes, int], Partition]]:
        return (((topic.id, partition.index), partition) for topic in self._topics for partition in topic.partitions)

    def _found(self, topic: str, index: int) -> Partition:
        if not self._topics.has_partition(topic, index):
            raise TopologyError(f"there is no partition {topic}-{index}")
        return self._topics.partition(topic, index)

    def _check_node(self, node_id: int) -> None:
        if node_id not in self.nodes.ids:
            raise TopologyError(f"there is no node {node_id}: the nodes are {', '.join(map(str, self.nodes.ids))}")

    def _hold(self, partition: Partition, is_held: bool) -> None:
        before, partition.is_held = partition.is_held, is_held
        try:
            self._elect([partition])
        except Exception:
            partition.is_held = before
            raise

    def _elect(self, partitions: Iterable[Partition]) -> None:
        rules = {
            topic.name: (topic.config["unclean.leader.election.enable"], self._topics.eligible_below(topic.name))
            for topic in self._topics
        }
        changes: list[tuple[Partition, Assignment]] = []
        for one in partitions:
            unclean, least = rules[one.topic]
            made = self.nodes.elected(one.assignment, is_held=one.is_held, unclean=unclean, least=least)
            changes.append((one, made))
        self._change(changes)

    def _change(self, wanted: Sequence[tuple[Partition, Assignment]]) -> None:
        self._apply(wanted)
        self.catch_up()

    def _apply(self, wanted: Sequence[tuple[Partition, Assignment]]) -> None:
        changes = [(partition, made) for partition, made in wanted if made != partition.assignment]
        if not changes:
            return
        leaders = {id(partition): partition.leader for partition, _ in changes}
        renewed = [one for one, made in changes if made.leader_epoch != one.assignment.leader_epoch]
        self._copies.advance()  # the rates depend on the leaders
        self._topics.reassign(changes, self._clock.now_ms())
        for partition, _ in changes:
            self._copies.follow(partition)
        for partition in renewed:
            key = self._topics.named(partition.topic).id, partition.index
            self._known_epochs[key] = max(self._known_epochs.get(key, 0), partition.leader_epoch)
            if partition.leader != leaders[id(partition)]:
                self.on_leader(partition)
            wake_all(partition.waiters)
