"""Random events of a transactional id: clients that retry or are zombies, failed writes, crashes.

Invariants: epochs never decrease, there is one owner at a time, a transaction ends one way only, all decisions are
completed, and recovery from any prefix of the log leads to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.broker.transactions import records
from ottla.broker.transactions.moves import PREPARE_ABORT, PREPARE_COMMIT
from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import (
    MAX_EPOCH,
    AddPartitions,
    Allocate,
    Append,
    Appended,
    AppendFailed,
    EndTxn,
    Event,
    Expire,
    Forget,
    InitProducerId,
    Loaded,
    MarkersWritten,
    Phase,
    Reply,
    Response,
    Slot,
    TimeOut,
    Transaction,
    TransactionState,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.broker.transactions.table import advance
from ottla.protocol.errors import ErrorCode

NONE = ErrorCode.NONE
DECIDED = (PREPARE_COMMIT, PREPARE_ABORT)
CLIENTS = st.sampled_from([0, 0, 0, 1])
GOES_ON = st.sampled_from([0, 1, 2, 3, 3, 3])  # number of writes and markers that succeed at once
RARELY = st.sampled_from([False, False, False, True])
PARTITIONS = st.lists(st.tuples(st.sampled_from("tu"), st.integers(0, 1)), min_size=1, max_size=3).map(tuple)


@dataclass
class Client:
    """The state of a producer. `lineage` counts the owners: producer ids and epochs of one owner come from one
    InitProducerId.
    """

    producer_id: int = -1
    producer_epoch: int = -1
    lineage: int = -1
    ended: EndTxn | None = None  # its last request, to be repeated


def replayed(log: list[tuple[bytes, bytes | None]]) -> Slot:
    slot = Slot("tx")
    for key, value in log:
        entry = records.decode(key, value)
        assert entry is not None
        slot = Slot("tx", entry.transaction)
    return slot


def finished(slot: Slot, writing: Append | None, settings: TransactionSettings, now_ms: int) -> Slot:
    """Returns the final state of the slot if all writes succeed from now on and no request arrives."""
    todo: list[Event] = [] if writing is None else [Appended(writing)]
    if slot.phase is Phase.MARKED:
        todo.append(TimeOut())
    elif slot.phase is Phase.MARKING:
        settled = slot.settled
        assert settled is not None
        todo.append(MarkersWritten(WriteMarkers("tx", settled.producer_id, settled.producer_epoch, True, ())))
    else:
        todo.append(Loaded())
    for _ in range(10):
        if not todo:
            return slot
        slot, effects = advance(slot, todo.pop(0), now_ms=now_ms, settings=settings)
        for effect in effects:
            if isinstance(effect, Append):
                todo.append(Appended(effect))
            elif isinstance(effect, WriteMarkers):
                todo.append(MarkersWritten(effect))
    raise AssertionError("never finished")


class Lives(RuleBasedStateMachine):
    """The coordinator, the clients and the log of one id."""

    @initialize(version=st.sampled_from([0, 1, 2, 2]), epoch=st.sampled_from([None, 0, 32764, 32765, 32766, 32766]))
    def begin(self, version: int, epoch: int | None) -> None:
        self.settings = TransactionSettings(expiration_ms=1000, server_version=version)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 10_000
        self.next_id = 101
        self.token = 0
        self.requests: dict[int, tuple[Client, Any, bool]] = {}
        self.clients = [Client() for _ in range(2)]
        self.owner = 0  # the lineage of the last owner with a successful response
        self.given = (0, 0)
        self.decisions: dict[int, bool] = {}
        self.acknowledged: dict[int, set[tuple[str, int]]] = {}
        self.writing: Append | None = None
        self.marking: WriteMarkers | None = None
        if epoch is not None:
            self.keep(Transaction("tx", 100, epoch, 50, last_update_ms=self.now_ms))
            self.given = (100, epoch)
            self.clients[0] = Client(100, epoch, self.owner)
        self.slot = replayed(self.log)

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def keep(self, written: Transaction | None) -> None:
        version = self.settings.record_version
        self.log.append(
            records.transaction_tombstone("tx") if written is None else records.transaction_record(written, version)
        )

    def feed(self, event: Event) -> None:
        self.now_ms += 1
        before = self.slot
        self.slot, effects = advance(before, event, now_ms=self.now_ms, settings=self.settings)
        self.note_decision()
        for effect in effects:
            if isinstance(effect, Reply):
                self.replied(before, effect)
            elif isinstance(effect, Append):
                assert self.writing is None, "one record at a time"
                self.writing = effect
            elif isinstance(effect, WriteMarkers):
                self.mark(effect)
            elif isinstance(effect, Allocate):
                assert effect.request.new_producer_id is None
                self.next_id += 1
                self.feed(replace(effect.request, new_producer_id=self.next_id))
            else:
                assert isinstance(effect, Forget)
                assert self.slot == Slot("tx")

    def note_decision(self) -> None:
        settled = self.slot.settled
        if settled is not None and settled.state in DECIDED:
            committed = settled.state is PREPARE_COMMIT
            assert self.decisions.setdefault(settled.start_ms, committed) == committed, "it ended differently"

    def mark(self, markers: WriteMarkers) -> None:
        settled = self.slot.settled
        assert settled is not None
        assert self.decisions[settled.start_ms] == markers.committed
        assert (markers.producer_id, markers.producer_epoch) == (settled.producer_id, settled.producer_epoch)
        assert set(markers.partitions) >= self.acknowledged.get(settled.start_ms, set()), "a partition has no marker"
        self.marking = markers

    def send(self, client: Client, request: Any, quick: int, lost: bool) -> None:
        self.token += 1
        request = replace(request, token=self.token)
        self.requests[self.token] = (client, request, lost)
        self.feed(request)
        self.go_on(quick)
        assert self.token not in self.requests or self.writing is not None, "no response, and no pending write"

    def go_on(self, steps: int) -> None:
        """Lets a number of writes and markers succeed."""
        for _ in range(steps):
            if self.writing is not None:
                self.succeed()
            elif self.marking is not None:
                self.markers_written()

    def markers_written(self) -> None:
        markers, self.marking = self.marking, None
        assert markers is not None
        self.feed(MarkersWritten(markers))
        assert self.writing is not None, "the transaction is not completed"

    def succeed(self) -> None:
        write, self.writing = self.writing, None
        assert write is not None
        self.keep(write.written)
        self.recoverable()
        self.feed(Appended(write))

    # --- responses ---------------------------------------------------------------------------------------------------

    def replied(self, before: Slot, reply: Reply) -> None:
        client, request, lost = self.requests.pop(reply.token)
        response = reply.response
        if response.error is not NONE:
            return
        if isinstance(request, InitProducerId):
            self.granted(before, client, request, response, lost)
            return
        assert client.lineage == self.owner, "a fenced owner was served"
        settled = self.slot.settled
        assert settled is not None
        if isinstance(request, EndTxn):
            assert self.decisions[settled.start_ms] == request.committed
            if request.client_version >= 2:
                self.give(response)
                if not lost:
                    client.producer_id, client.producer_epoch = response.producer_id, response.producer_epoch
            else:
                assert (response.producer_id, response.producer_epoch) == (-1, -1)
        elif isinstance(request, VerifyPartitions):
            assert set(response.missing) == set(request.partitions) - set(settled.partitions)
        else:
            assert settled.state is TransactionState.ONGOING
            assert set(request.partitions) <= set(settled.partitions)
            self.acknowledged.setdefault(settled.start_ms, set()).update(request.partitions)

    def granted(self, before: Slot, client: Client, request: InitProducerId, response: Response, lost: bool) -> None:
        if request.producer_id == -1 or before.state is TransactionState.DEAD:
            assert (response.producer_id, response.producer_epoch) > self.given, "used by two owners"
            self.owner += 1
            lineage = self.owner
        else:
            lineage = client.lineage
            assert lineage == self.owner, "a fenced owner returned"
        self.give(response)
        if not lost:
            client.producer_id, client.producer_epoch = response.producer_id, response.producer_epoch
            client.lineage, client.ended = lineage, None

    def give(self, response: Response) -> None:
        pair = (response.producer_id, response.producer_epoch)
        assert pair >= self.given, "an epoch decreased"
        assert response.producer_epoch < MAX_EPOCH, "the last epoch is reserved for fencing"
        self.given = pair

    # --- events ------------------------------------------------------------------------------------------------------

    @rule(who=CLIENTS, quick=GOES_ON, lost=RARELY)
    def init(self, who: int, quick: int, lost: bool) -> None:
        self.send(self.clients[who], InitProducerId(0, 50), quick, lost)

    @rule(who=CLIENTS, quick=GOES_ON, lost=RARELY)
    def recover(self, who: int, quick: int, lost: bool) -> None:
        client = self.clients[who]
        self.send(client, InitProducerId(0, 50, client.producer_id, client.producer_epoch), quick, lost)

    def version_of(self, new: bool) -> int:
        return 2 if new and self.settings.server_version >= 2 else 0

    @rule(who=CLIENTS, partitions=PARTITIONS, new=st.sampled_from([True, True, False]), quick=GOES_ON)
    def add(self, who: int, partitions: Any, new: bool, quick: int) -> None:
        client = self.clients[who]
        event = AddPartitions(0, client.producer_id, client.producer_epoch, partitions, self.version_of(new))
        self.send(client, event, quick, False)

    @rule(who=CLIENTS, new=st.sampled_from([True, True, False]), quick=GOES_ON)
    def add_offsets(self, who: int, new: bool, quick: int) -> None:
        client = self.clients[who]
        partitions = (("__consumer_offsets", 0),)
        event = AddPartitions(0, client.producer_id, client.producer_epoch, partitions, self.version_of(new))
        self.send(client, event, quick, False)

    @rule(who=CLIENTS, partitions=PARTITIONS)
    def verify(self, who: int, partitions: Any) -> None:
        client = self.clients[who]
        self.send(client, VerifyPartitions(0, client.producer_id, client.producer_epoch, partitions), 0, False)

    @rule(who=CLIENTS, committed=st.booleans(), new=st.sampled_from([True, True, False]), quick=GOES_ON, lost=RARELY)
    def end(self, who: int, committed: bool, new: bool, quick: int, lost: bool) -> None:
        client = self.clients[who]
        version = self.version_of(new)
        client.ended = EndTxn(0, client.producer_id, client.producer_epoch, committed, version)
        self.send(client, client.ended, quick, lost)

    @rule(partitions=PARTITIONS, committed=st.booleans(), new=st.sampled_from([True, True, False]))
    def transact(self, partitions: Any, committed: bool, new: bool) -> None:
        """Runs a whole transaction of the first client, which succeeds unless the client is fenced."""
        client, version = self.clients[0], self.version_of(new)
        self.send(client, AddPartitions(0, client.producer_id, client.producer_epoch, partitions, version), 3, False)
        client.ended = EndTxn(0, client.producer_id, client.producer_epoch, committed, version)
        self.send(client, client.ended, 3, False)

    @rule(who=CLIENTS, lost=RARELY)
    def end_again(self, who: int, lost: bool) -> None:
        client = self.clients[who]
        if client.ended is not None:
            self.send(client, client.ended, 3, lost)

    @precondition(lambda self: self.writing is not None)
    @rule()
    def written(self) -> None:
        self.succeed()

    @precondition(lambda self: self.writing is not None)
    @rule(kept=st.booleans())
    def not_written(self, kept: bool) -> None:
        """Fails the write; with `kept` the record is in the log nevertheless."""
        write, self.writing = self.writing, None
        assert write is not None
        if kept:
            self.keep(write.written)
            self.recoverable()
        self.feed(AppendFailed(write, ErrorCode.COORDINATOR_NOT_AVAILABLE))

    @precondition(lambda self: self.marking is not None)
    @rule(quick=GOES_ON)
    def marked(self, quick: int) -> None:
        self.markers_written()
        self.go_on(quick)

    @rule(wait_ms=st.sampled_from([0, 0, 100]), quick=GOES_ON)
    def sweep(self, wait_ms: int, quick: int) -> None:
        self.now_ms += wait_ms
        self.feed(TimeOut())
        self.go_on(quick)

    @rule(wait_ms=st.sampled_from([0, 0, 0, 0, 0, 1100]))
    def expire(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.feed(Expire())

    @rule(kept=st.booleans())
    def crash(self, kept: bool) -> None:
        if kept and self.writing is not None:
            self.keep(self.writing.written)
        self.writing = self.marking = None
        self.requests.clear()
        self.slot = replayed(self.log)
        self.note_decision()
        self.feed(Loaded())

    # --- invariants --------------------------------------------------------------------------------------------------

    def recoverable(self) -> None:
        """Checks recovery from a crash here: decided transactions complete, and the check for timeouts aborts the
        others.
        """
        before = replayed(self.log)
        after = finished(before, None, self.settings, self.now_ms)
        self.ends_well(before, after)
        late, effects = advance(after, TimeOut(), now_ms=self.now_ms + 10_000, settings=self.settings)
        if effects and isinstance(effects[0], Allocate):
            event = replace(effects[0].request, new_producer_id=self.next_id + 1)
            late, effects = advance(after, event, now_ms=self.now_ms + 10_000, settings=self.settings)
        if after.state is TransactionState.ONGOING:
            (write,) = effects
            assert isinstance(write, Append)
            assert finished(late, write, self.settings, self.now_ms).state is TransactionState.COMPLETE_ABORT
        else:
            assert not effects

    def ends_well(self, before: Slot, after: Slot) -> None:
        assert not after.pending
        assert after.state not in DECIDED
        if before.state is PREPARE_COMMIT:
            assert after.state is TransactionState.COMPLETE_COMMIT
        elif before.state is PREPARE_ABORT:
            assert after.state is TransactionState.COMPLETE_ABORT

    @invariant()
    def all_that_was_decided_is_completed(self) -> None:
        self.ends_well(self.slot, finished(self.slot, self.writing, self.settings, self.now_ms))

    @invariant()
    def the_slot_matches_the_pending_write(self) -> None:
        slot = self.slot
        assert slot.writing == self.writing
        assert (slot.phase is Phase.WRITING) == (self.writing is not None)
        assert (slot.phase is Phase.MARKING) == (self.marking is not None)
        assert slot.phase in (Phase.STILL, Phase.WRITING) or slot.state in DECIDED
        assert not slot.fence_failed or slot.state is TransactionState.ONGOING

    @invariant()
    def the_log_knows_every_epoch_that_was_given(self) -> None:
        for slot in (self.slot, replayed(self.log)):
            settled = slot.settled
            if settled is None:
                continue
            pair = (settled.producer_id, settled.producer_epoch)
            if settled.next_producer_id != -1:
                pair = (settled.next_producer_id, 0)
            assert pair >= self.given
            assert bool(settled.partitions) <= (settled.state in (TransactionState.ONGOING, *DECIDED))


TestLives = Lives.TestCase
TestLives.settings = hypothesis_settings(stateful_step_count=60)
