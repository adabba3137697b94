"""The language of the transaction scripts, and the comparable form of their responses.

Producer ids are named P1, P2 ... in the order in which a script meets them; epochs and offsets are kept. Each script
has ids, a group and a topic of its own. A script never queries an id while its transaction is being ended: the response
would depend on milliseconds; see `make_transactions.held`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.protocol.records import batch
from ottla_testing.oracle.transaction_wire import Closed, Wire
from ottla_testing.patience import PATIENCE_S

PARTITIONS = 3
NOT_READY = (14, 15, 16)  # the coordinator: loading, not available, on another broker
BEING_ENDED = ("PrepareCommit", "PrepareAbort")
SETTINGS = {
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "200",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}  # of brokers that run scripts
OWN = "the id of the play"
STRANGER = 987_654_321  # a producer id that was never assigned
Line = list[Any]
Play = Callable[["Stage"], None]


def at(producer_id: int, epoch: int) -> dict[str, int]:
    return {"producer_id": producer_id, "producer_epoch": epoch}


class Stage:
    """One script on one broker: `pid` and `epoch` are those that the producer of this script would use next; `lines`
    are the requests with their responses."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.name = name
        self.topic = self.group = name
        self.pid = self.epoch = -1
        self.held = False  # markers are not written: do not wait for them
        self.lines: list[Line] = []
        self._names: dict[int, str] = {}

    def other(self, suffix: str) -> Stage:
        """Another producer in the same script, with a transactional id of its own."""
        made = Stage(self.wire, f"{self.name}-{suffix}")
        made.topic, made.group, made.lines, made._names = self.topic, self.group, self.lines, self._names
        return made

    def create_topic(self, brokers: Sequence[int] = (), **configs: str) -> None:
        """Creates a topic, partition by partition on these brokers, if any are named."""
        topic = {
            "name": self.topic,
            "num_partitions": -1 if brokers else PARTITIONS,
            "replication_factor": -1 if brokers else 1,
            "assignments": [{"partition_index": i, "broker_ids": [one]} for i, one in enumerate(brokers)],
            "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
        }
        topics = [topic]
        self.wire.call("CreateTopics", 5, topics=topics, timeout_ms=10_000, validate_only=False)
        here = [index for index, broker in enumerate(brokers or (1,) * PARTITIONS) if broker == 1]
        places = [{"partition_index": index, "timestamp": -1} for index in here]
        requested = [{"name": self.topic, "partitions": places}]
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:  # the partitions appear shortly after the response
            (found,) = self.wire.call("ListOffsets", 1, replica_id=-1, topics=requested)["topics"]
            if not any(one["error_code"] for one in found["partitions"]):
                return
            time.sleep(0.02)
        raise AssertionError(f"{self.topic} did not come")

    # -- recording

    def named(self, producer_id: int) -> str | int:
        """Returns the recorded name of a producer id."""
        if producer_id in (-1, STRANGER):
            return {-1: "none", STRANGER: "stranger"}[producer_id]
        return self._names.setdefault(producer_id, f"P{len(self._names) + 1}")

    def keep(self, what: str, response: Any) -> Any:
        self.lines.append([what, response])
        return response

    def owner(self, given: tuple[int, int] | None) -> tuple[int, int]:
        return (self.pid, self.epoch) if given is None else given

    def send(self, name: str, version: int, **fields: Any) -> dict[str, Any] | None:
        """Sends a request and records it; None if the broker closed the connection."""
        try:
            return self.wire.call(name, version, **fields)
        except Closed:
            return None

    # -- requests

    def init(
        self, version: int = 4, given: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000, name: str | None = OWN
    ) -> int:
        """Sends InitProducerId and adopts the returned id and epoch. Returns the error."""
        name = self.name if name == OWN else name
        fields = at(*given) if version >= 3 else {}
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.send(
                "InitProducerId", version, transactional_id=name, transaction_timeout_ms=timeout_ms, **fields
            )
            if found is None or found["error_code"] not in NOT_READY or time.monotonic() > end:
                break
            time.sleep(0.05)
        what = f"InitProducerId v{version} id={shown(name)} {self.named(given[0])}/{given[1]} {timeout_ms} ms"
        if found is None:
            self.keep(what, "closed")
            return -1
        self.keep(what, [found["error_code"], self.named(found["producer_id"]), found["producer_epoch"]])
        if not found["error_code"]:
            self.pid, self.epoch = found["producer_id"], found["producer_epoch"]
        return found["error_code"]

    def add(
        self,
        version: int = 3,
        partitions: Sequence[int] = (0,),
        given: tuple[int, int] | None = None,
        name: str | None = None,
        **more: Sequence[int],
    ) -> None:
        """Sends AddPartitionsToTxn up to v3. `more`: other topics."""
        pid, epoch = self.owner(given)
        wanted = {self.topic: partitions, **more}
        topics = [{"name": topic, "partitions": list(listed)} for topic, listed in wanted.items() if listed]
        name = self.name if name is None else name
        found = self.send(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )
        what = f"AddPartitionsToTxn v{version} id={shown(name)} {self.named(pid)}/{epoch} {show_topics(topics)}"
        self.keep(what, "closed" if found is None else by_partition(found["results_by_topic_v3_and_below"]))

    def add_batched(self, version: int, *transactions: dict[str, Any]) -> None:
        """Sends AddPartitionsToTxn from v4 on: each with name, given, partitions and verify_only."""
        requested, words = [], []
        for one in transactions:
            pid, epoch = self.owner(one.get("given"))
            topics = [{"name": one.get("topic", self.topic), "partitions": list(one["partitions"])}]
            name = one.get("name", self.name)
            fields = {"transactional_id": name, **at(pid, epoch), "verify_only": one["verify_only"], "topics": topics}
            requested.append(fields)
            kind = "verify" if one["verify_only"] else "add"
            words.append(f"{kind} id={name} {self.named(pid)}/{epoch} {show_topics(topics)}")
        found = self.send("AddPartitionsToTxn", version, transactions=requested)
        what = f"AddPartitionsToTxn v{version} {'; '.join(words)}"
        if found is None:
            self.keep(what, "closed")
            return
        results = {
            one["transactional_id"]: by_partition(one["topic_results"]) for one in found["results_by_transaction"]
        }
        self.keep(what, [found["error_code"], results])

    def add_offsets(
        self,
        version: int = 3,
        given: tuple[int, int] | None = None,
        name: str | None = None,
        group: str | None = None,
    ) -> None:
        pid, epoch = self.owner(given)
        name, group = self.name if name is None else name, self.group if group is None else group
        found = self.send("AddOffsetsToTxn", version, transactional_id=name, group_id=group, **at(pid, epoch))
        what = f"AddOffsetsToTxn v{version} id={shown(name)} {self.named(pid)}/{epoch} group={shown(group)}"
        self.keep(what, "closed" if found is None else found["error_code"])

    def commit_offsets(
        self,
        version: int = 3,
        offset: int = 5,
        given: tuple[int, int] | None = None,
        name: str | None = None,
        member: tuple[int, str] = (-1, ""),
        topic: str | None = None,
        group: str | None = None,
    ) -> None:
        """Sends TxnOffsetCommit for partition 0; retries while the group's coordinator is not ready."""
        pid, epoch = self.owner(given)
        name, group = self.name if name is None else name, self.group if group is None else group
        one: dict[str, Any] = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        if version >= 2:
            one["committed_leader_epoch"] = -1
        topics = [{"name": self.topic if topic is None else topic, "partitions": [one]}]
        fields: dict[str, Any] = {"transactional_id": name, "group_id": group, **at(pid, epoch), "topics": topics}
        if version >= 3:
            fields |= {"generation_id": member[0], "member_id": member[1], "group_instance_id": None}
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.send("TxnOffsetCommit", version, **fields)
            if found is None:
                error: Any = "closed"
                break
            error = found["topics"][0]["partitions"][0]["error_code"]
            if error not in NOT_READY or time.monotonic() > end:
                break
            time.sleep(0.05)
        who = f"{self.named(pid)}/{epoch} group={shown(group)} {member[0]},{member[1]!r}"
        self.keep(f"TxnOffsetCommit v{version} id={shown(name)} {who} {topics[0]['name']}-0 at {offset}", error)

    def offsets(self, require_stable: bool) -> None:
        """Sends OffsetFetch v7 of partition 0."""
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        found = self.wire.call("OffsetFetch", 7, group_id=self.group, topics=topics, require_stable=require_stable)
        one = found["topics"][0]["partitions"][0]
        what = f"OffsetFetch v7 {'stable' if require_stable else 'any'}"
        self.keep(what, [found["error_code"], one["error_code"], one["committed_offset"]])

    def produce(
        self,
        version: int = 9,
        partition: int = 0,
        sequence: int = 0,
        given: tuple[int, int] | None = None,
        name: str | None = OWN,
        transactional: bool = True,
        acks: int = -1,
        value: bytes = b"v",
    ) -> None:
        """Sends one batch with one record. `name` None is no transactional id."""
        pid, epoch = self.owner(given)
        name = self.name if name == OWN else name
        made = batch.build(
            [batch.Record(0, 1_700_000_000_000, None, value, ())],
            batch.BatchFields(
                producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
            ),
        )
        data = [{"name": self.topic, "partition_data": [{"index": partition, "records": bytes(made)}]}]
        found = self.send("Produce", version, transactional_id=name, acks=acks, timeout_ms=10_000, topic_data=data)
        kind = "" if transactional else " not transactional"
        what = f"Produce v{version} id={shown(name)} {self.named(pid)}/{epoch} {partition} at {sequence}{kind}"
        if found is None:
            self.keep(what, "closed")
            return
        one = found["responses"][0]["partition_responses"][0]
        self.keep(what, [one["error_code"], one["base_offset"]])

    def end(
        self,
        committed: bool,
        version: int = 4,
        given: tuple[int, int] | None = None,
        name: str | None = None,
    ) -> None:
        """Sends EndTxn, adopts producer id and epoch of a v5 response, and waits until the transaction is complete."""
        pid, epoch = self.owner(given)
        name = self.name if name is None else name
        found = self.send("EndTxn", version, transactional_id=name, committed=committed, **at(pid, epoch))
        what = f"EndTxn v{version} id={shown(name)} {self.named(pid)}/{epoch} {'commit' if committed else 'abort'}"
        if found is None:
            self.keep(what, "closed")
            return
        response = [found["error_code"]]
        if version >= 5:
            response += [self.named(found["producer_id"]), found["producer_epoch"]]
            if not found["error_code"]:
                self.pid, self.epoch = found["producer_id"], found["producer_epoch"]
        self.keep(what, response)
        if not self.held:
            self.settle()

    def describe(self, *names: str) -> None:
        """Sends DescribeTransactions of this script's id, or others."""
        found = self.wire.call("DescribeTransactions", 0, transactional_ids=list(names or (self.name,)))
        response = [
            [
                one["error_code"],
                one["transactional_id"],
                one["transaction_state"],
                one["transaction_timeout_ms"],
                one["transaction_start_time_ms"] > 0,
                self.named(one["producer_id"]),
                one["producer_epoch"],
                sorted(f"{topic['topic']}-{index}" for topic in one["topics"] for index in topic["partitions"]),
            ]
            for one in found["transaction_states"]
        ]
        self.keep(f"DescribeTransactions {', '.join(names or (self.name,))}", response)

    def list(self, version: int = 1, **filters: Any) -> None:
        """Sends ListTransactions; records this script's ids."""
        given = {"state_filters": [], "producer_id_filters": [], **filters}
        if version >= 1:
            given.setdefault("duration_filter", -1)
        found = self.send("ListTransactions", version, **given)
        words = {**given, "producer_id_filters": [self.named(one) for one in given["producer_id_filters"]]}
        if found is None:
            self.keep(f"ListTransactions v{version} {words}", "closed")
            return
        states = sorted(
            [one["transactional_id"], self.named(one["producer_id"]), one["transaction_state"]]
            for one in found["transaction_states"]
            if one["transactional_id"].partition("-")[0] == self.name
        )
        response = [found["error_code"], sorted(found["unknown_state_filters"]), states]
        self.keep(f"ListTransactions v{version} {words}", response)

    def find(self, version: int, key: str, key_type: int = 1) -> None:
        """Sends FindCoordinator; records the error, the key, and whether there is a node."""
        fields = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self.send("FindCoordinator", version, key_type=key_type, **fields)
            one = None if found is None else found["coordinators"][0] if version >= 4 else found
            if one is None or one["error_code"] not in NOT_READY or time.monotonic() > end:
                break
            time.sleep(0.05)
        response = "closed" if one is None else [one["error_code"], one["node_id"] >= 0, one["port"] > 0]
        self.keep(f"FindCoordinator v{version} type {key_type} {shown(key)}", response)

    def find_both(self) -> None:
        """Finds both coordinators, which creates their topics."""
        for key_type in (0, 1):
            self.find(4, self.name, key_type)

    def producers(self, partition: int = 0) -> None:
        """Sends DescribeProducers of a partition of the script's topic; the coordinator epoch, which differs between
        starts of Kafka, is recorded as 0."""
        topics = [{"name": self.topic, "partition_indexes": [partition]}]
        (one,) = self.wire.call("DescribeProducers", 0, topics=topics)["topics"][0]["partitions"]
        response = sorted(
            [
                self.named(found["producer_id"]),
                found["producer_epoch"],
                found["last_sequence"],
                min(found["coordinator_epoch"], 0),
                found["current_txn_start_offset"],
            ]
            for found in one["active_producers"]
        )
        self.keep(f"DescribeProducers {partition}", [one["error_code"], response])

    def wait_for_markers(self, *left: int) -> None:
        """Waits until these partitions of the topic are the only ones without their marker."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            (one,) = self.wire.call("DescribeTransactions", 0, transactional_ids=[self.name])["transaction_states"]
            if [(topic["topic"], *topic["partitions"]) for topic in one["topics"]] == [(self.topic, *left)]:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.name} waits for {one['topics']}")

    def settle(self, *states: str) -> None:
        """Waits until no transaction of this id is being ended, or until it is in one of these states."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            (one,) = self.wire.call("DescribeTransactions", 0, transactional_ids=[self.name])["transaction_states"]
            state = one["transaction_state"]
            if state in states if states else state not in BEING_ENDED:
                return
            time.sleep(0.01)
        raise AssertionError(f"{self.name} is in {state}: {self.lines}")


def shown(text: str | None) -> str:
    return "null" if text is None else repr(text)


def show_topics(topics: Sequence[dict[str, Any]]) -> str:
    return ",".join(f"{topic['name']}-{index}" for topic in topics for index in topic["partitions"]) or "nothing"


def by_partition(topics: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {
        f"{topic['name']}-{one['partition_index']}": one["partition_error_code"]
        for topic in topics
        for one in topic["results_by_partition"]
    }


def played(play: Play, address: str, *, is_prepared: bool = False) -> list[Line]:
    """Runs a script on a broker and returns its lines. The topic must exist."""
    wire = Wire(address)
    try:
        stage = Stage(wire, play.__name__)
        if not is_prepared:
            stage.create_topic()
        stage.find_both()
        play(stage)
        return stage.lines
    finally:
        wire.close()


def written(plays: dict[str, list[Line]]) -> str:
    """Returns JSON with a line for each line of each script."""
    parts = []
    for name, lines in plays.items():
        rows = ",\n".join("  " + json.dumps(line) for line in lines)
        parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
