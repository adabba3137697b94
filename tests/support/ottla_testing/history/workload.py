"""Clients of all libraries that work, crash and restart, while the broker is killed, paused and disconnected.
Owns the broker, the proxies before its nodes, the clients' processes and the faults, all chosen by a seed (except for
the exact times, which depend on the machine). `Workload.finish` ends all faults, waits for the final state and reads
everything; `checker.check` then checks the history.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from ottla.client import Admin
from ottla.client import KafkaError as Failure
from ottla.client.admin.types import ShareOffset
from ottla.protocol.errors import ErrorCode
from ottla_testing.clients.running_broker import RunningBroker, free_ports
from ottla_testing.history.cutting_proxy import CuttingProxy
from ottla_testing.history.history import Recorder
from ottla_testing.history.life import VALUES_PER_LIFE
from ottla_testing.history.life_wire import configure_sharing
from ottla_testing.history.ports import split
from ottla_testing.history.shares import configs_of
from ottla_testing.patience import PATIENCE_S

LINES, PARTITIONS = "lines", 3  # the topic that all consumers read
LINE_PARTITIONS = [f"{LINES}-{index}" for index in range(PARTITIONS)]
MADE_PARTITIONS = 2  # of a loop's target topic
COMMITTED_ONLY, ALL = "read_committed", "read_uncommitted"
FIRST_DEEDS = {  # no faults before these
    "sender": '"type":"ok","op":"send"',
    "member": '"type":"ok","op":"poll"',
    "writer": '"type":"ok","op":"commit"',
    "loop": '"type":"ok","op":"send_offsets"',
    "sharer": '"type":"ok","op":"share_ack"',
    "application": '"partition":"made_by_streams',
}
FAULTS = ("kill", "pause", "cut", "crash", "zombie")
GROUP_FAULTS = (*FAULTS, "move")
CLUSTER_FAULTS = (*GROUP_FAULTS, "node", "lead", "reassign")
MOVED = {"__consumer_offsets": 3, "__share_group_state": 3}  # internal topics whose leaders move, and their partitions
NOT_FOUND, CONFLICT = 404, 409  # of the control plane
RETURN_S = 1.0  # a dead client restarts within this time
CHUNK = 500
SHARE_LIMIT, SHARE_LOCKS, SHARE_LOCK_S = 8, 100, 2.0
QUIET_S = 2 * SHARE_LOCK_S  # a share group without deliveries for so long and without a lag has nothing left
# With a lag it may have acquired only markers of transactions, which librdkafka does not acknowledge: they are archived
# after the last delivery, and until then their locks may leave none for the records after them.
STUCK_S = (SHARE_LIMIT + 2) * SHARE_LOCK_S


@dataclass
class Client:
    """A client with all its lives. The processes of earlier lives may still run: zombies."""

    name: str
    role: str
    library: str
    more: dict[str, Any]
    lives: int = 0
    process: subprocess.Popen[bytes] | None = None
    label: str = ""
    returns_at: float = 0.0
    zombies: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)


LIBRARIES = ("confluent", "aiokafka", "kafka_python", "ottla")


def sender(library: str, *partitions: str) -> list[Client]:
    more = {"partitions": partitions or LINE_PARTITIONS}
    return [Client(f"{library} sender", "sender", library, more)]


def members(library: str, count: int = 1, **more: Any) -> list[Client]:
    """Returns a group of members."""
    more = {"group": f"{library} members", "topics": [LINES], **more}
    name = more["group"].removesuffix("s")
    return [Client(f"{name} {number}", "member", library, more) for number in range(count)]


def writer(library: str, *partitions: str) -> list[Client]:
    name = f"{library} writer"
    more = {"partitions": partitions or LINE_PARTITIONS, "transactional_id": name}
    return [Client(name, "writer", library, more)]


def loops(library: str, **more: Any) -> list[Client]:
    """Returns a group of consume-transform-produce loops, with their own target topic."""
    given = more
    clients: list[Client] = []
    # aiokafka commits offsets for a group without a member id: of two members, the old one is not fenced.
    for number in range(1 if library == "aiokafka" else 2):
        name = f"{library} loop {number}"
        more = {"group": f"{library} loops", "topics": [LINES], "transactional_id": name}
        more |= {"target": f"made_by_{library}", "target_partitions": MADE_PARTITIONS, **given}
        clients.append(Client(name, "loop", library, more))
    return clients


def applications(protocol: str, count: int = 2) -> list[Client]:
    """Returns the processes of an application of Kafka Streams that does what a loop does. The environment has their
    command, `OTTLA_HISTORY_STREAMS`."""
    more = {"application": f"{protocol}-application", "target": f"made_by_streams_{protocol}", "protocol": protocol}
    more |= {"target_partitions": MADE_PARTITIONS}
    return [Client(f"{protocol} application {number}", "application", "streams", more) for number in range(count)]


def whole_crew() -> list[Client]:
    """Returns every role of each library."""
    clients = [one for library in LIBRARIES for one in sender(library) + members(library, 2)]
    return clients + [one for library in LIBRARIES for one in writer(library) + loops(library)]


def small_crew(seed: int) -> list[Client]:
    """Returns one client per role, of libraries chosen by the seed."""
    choose = random.Random(seed)
    plain, transactional = choose.sample(LIBRARIES, 2), choose.sample(LIBRARIES, 2)
    return [*sender(plain[0]), *members(plain[1], 2), *writer(transactional[0]), *loops(transactional[1])]


def sharers(library: str, count: int, isolation: str = ALL) -> list[Client]:
    """Returns a share group of members. Groups of different isolation have different names."""
    group = f"{library} sharers of {isolation}"
    more = {"group": group, "topics": [LINES], "share": configs_of(SHARE_LIMIT, SHARE_LOCKS, SHARE_LOCK_S, isolation)}
    return [Client(f"{library} sharer {number} of {isolation}", "sharer", library, more) for number in range(count)]


def share_crew(nodes: int) -> list[Client]:
    """Returns a crew with share groups (KIP-932): of a real client, and of the wire in both isolations at one node."""
    clients = [*sender("confluent"), *writer("confluent", f"{LINES}-0"), *sharers("confluent", 2 if nodes == 1 else 3)]
    return [*clients, *(sharers("wire", 3) + sharers("wire", 2, COMMITTED_ONLY) if nodes == 1 else ())]


def group_times(kind: str) -> dict[str, str]:
    """Returns configs with a short session of the groups of a kind, which old releases do not have."""
    return {
        f"group_{kind}_session_timeout_ms": "4000",
        f"group_{kind}_heartbeat_interval_ms": "300",
        f"group_{kind}_min_session_timeout_ms": "1000",
        f"group_{kind}_min_heartbeat_interval_ms": "100",
    }


def share_terrain(seed: int) -> dict[str, str]:
    """Returns a release that has share groups, and configs for a run."""
    choose = random.Random(seed)
    around = terrain(seed) | group_times("share") | {"release": choose.choice(("", "4.2", "4.3", "4.4"))}
    around |= {
        "group_share_record_lock_duration_ms": str(int(1000 * SHARE_LOCK_S)),
        "group_share_min_record_lock_duration_ms": "1000",
        "group_share_delivery_count_limit": str(SHARE_LIMIT),
        "group_share_partition_max_record_locks": str(SHARE_LOCKS),
        "share_coordinator_state_topic_num_partitions": str(MOVED["__share_group_state"]),
    }
    if choose.random() < 0.5:
        around["share_coordinator_snapshot_update_records_per_snapshot"] = "5"
    return around


def next_crew() -> list[Client]:
    """Returns a crew with groups of the consumer protocol (KIP-848): one of it alone, one of a loop, and one whose
    members change between both protocols from life to life.
    """
    clients = [*sender("confluent"), *sender("ottla"), *writer("confluent"), *loops("confluent", protocol="consumer")]
    clients += members("confluent", 2, protocol="consumer")
    return clients + members("confluent", 3, protocol="either", group="migrating members")


def next_terrain(seed: int) -> dict[str, str]:
    """Returns a release that has the consumer protocol, and configs for a run."""
    around = terrain(seed) | group_times("consumer")
    return around | {"release": random.Random(seed).choice(("", "4.0", "4.3", "4.4"))}


def terrain(seed: int) -> dict[str, str]:
    """Returns a release and configs for a run: either version of transactions, with or without syncs, logs that roll
    often."""
    choose = random.Random(seed)
    more = {"release": choose.choice(("", "", "2.8", "3.9", "4.3"))}
    if choose.random() < 0.3:
        more["log_flush_interval_messages"] = "1"
    if choose.random() < 0.5:
        more |= {"log_index_size_max_bytes": "120", "log_cleaner_backoff_ms": "100"}
    return more


class Workload:
    """`pace` stretches the faults and the time between them; a client that does nothing for `hung_s` is killed. The
    broker is
    of `release` (own profile: "") and has `overrides`, config names with _ instead of dots.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        clients: list[Client],
        *,
        pace: float = 1.0,
        hung_s: int = 10,
        nodes: int = 1,
        release: str = "",
        **overrides: str,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seed, self.clients = folder, seed, clients
        self.pace, self.hung_s = pace, hung_s
        self.choose = random.Random(seed)
        self.path = folder / f"history-{seed}.jsonl"
        self.recorder = Recorder(self.path, "nemesis")
        self.numbers = 0
        self.broken: list[str] = []  # lives that ended in an unexpected way
        first = free_ports(nodes) if nodes > 1 else 0
        self.proxies = [CuttingProxy(first and first + index) for index in range(nodes)]
        self.address = ",".join(proxy.address for proxy in self.proxies)
        if nodes > 1:  # leaders move by faults alone, which the history has
            overrides = {"auto_leader_rebalance_enable": "false", **overrides}
        self.broker = RunningBroker(
            folder,
            release or None,
            nodes,
            control=f"127.0.0.1:{free_ports(1)}",
            advertised_listeners=f"PLAINTEXT://{self.proxies[0].address}",
            auto_create_topics_enable="false",
            offsets_topic_num_partitions="3",
            transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
            **overrides,
        )
        for index, proxy in enumerate(self.proxies):
            proxy.target = self.broker.port + index
        self.topics = {LINES: PARTITIONS}
        self.topics |= {client.more["target"]: MADE_PARTITIONS for client in clients if "target" in client.more}

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    # -- lives

    def begin(self) -> None:
        admin = self._admin()
        for made in admin.create_topics([NewTopic(*topic) for topic in self.topics.items()]).values():
            made.result(PATIENCE_S)
        for client in self.clients:
            if client.role == "sharer":
                configure_sharing(self.proxies[0].address, client.more["group"], client.more["share"]["isolation"])
            self.live(client)
        roles = {client.role for client in self.clients}
        wanted = [line for role, line in FIRST_DEEDS.items() if role in roles]

        def are_at_work() -> bool:
            text = self.path.read_text()
            return all(line in text for line in wanted)

        self.until(are_at_work, lambda: f"not all of these have happened: {wanted}")

    def live(self, client: Client) -> None:
        """Starts the next life of a client."""
        client.lives += 1
        self.numbers += 1
        client.label = f"{client.name}, life {client.lives}"
        config = {
            "history": str(self.path),
            "process": client.label,
            "number": self.numbers,
            "address": self.address,
            "library": client.library,
            "role": client.role,
            "hung_s": self.hung_s,
            "seed": self.choose.randrange(1 << 32),
            **client.more,
        }
        command = [sys.executable, str(Path(__file__).with_name("life.py")), json.dumps(config)]
        if client.role == "application":
            command = self._application(config)
        with self.log(client.name).open("ab") as log:
            client.process = subprocess.Popen(command, stdout=log, stderr=log)

    def _application(self, config: dict[str, Any]) -> list[str]:
        # A zombie still has the lock of its state.
        state = self.folder / f"state of {config['process']}"
        words = (self.path, config["process"], config["number"] * VALUES_PER_LIFE, self.address, config["application"])
        words += (config["protocol"], LINES, config["target"], config["target_partitions"], state)
        return [*shlex.split(os.environ["OTTLA_HISTORY_STREAMS"]), *map(str, words)]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def watch(self) -> None:
        """Notes which processes have ended, and restarts their clients."""
        now = time.monotonic()
        for client in self.clients:
            if client.process is not None and client.process.poll() is not None:
                self._buried(client.label, client.process, client.name)
                client.process, client.returns_at = None, now + self.choose.random() * RETURN_S
            elif client.process is None and now >= client.returns_at:
                self.live(client)

    def _buried(self, label: str, process: subprocess.Popen[bytes], name: str) -> None:
        code = process.wait()
        if code not in (0, 3):  # 0 and 3: it has recorded its exit
            self.recorder.crashed(label)
        if code == -signal.SIGALRM:
            self._fault("hung", client=label)
        elif code not in (0, 3, -signal.SIGKILL, -signal.SIGTERM):  # ended before it installed its signal handler
            self.broken.append(f"{label}: exit code {code}: {self.log(name).read_text()[-2000:]}")

    def rest(self, seconds: float) -> None:
        """Lets time pass."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.watch()
            time.sleep(min(left, 0.05))

    # -- faults

    def disturb(self, seconds: float, faults: tuple[str, ...] = FAULTS) -> None:
        """Runs one fault after the other: every kind, and more while there is time."""
        end = time.monotonic() + seconds
        for fault in self.choose.sample(faults, len(faults)):
            self.befall(fault)
        while time.monotonic() < end:
            self.befall(self.choose.choice(faults))

    def befall(self, fault: str) -> None:
        getattr(self, f"_{fault}")()
        self.rest(self.choose.random() * 1.5 * self.pace)

    def _fault(self, fault: str, **more: Any) -> None:
        self.recorder.ok("fault", fault=fault, **more)

    def _kill(self) -> None:
        if self.choose.random() < 0.2:
            self._fault("stop")
            self.broker.stop()
        else:
            self._fault("kill")
            self.broker.kill()
        self.rest(self.choose.choice((0, 0, 1)) * self.choose.random())
        self.broker.start()
        self._fault("start")

    def _pause(self) -> None:
        seconds = self.pace * self.choose.choice((0.1, 0.5, 2.0)) * (0.5 + self.choose.random())
        self._fault("pause", seconds=round(seconds, 3))
        with self.stopped(self.broker.process):
            self.rest(seconds)
            if self.choose.random() < 0.2:  # the clients are disconnected when it resumes, and it has their requests
                for proxy in self.proxies:
                    proxy.cut()
        self._fault("resume")

    @contextmanager
    def stopped(self, process: subprocess.Popen[Any] | None) -> Iterator[None]:
        assert process
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)

    def _cut(self) -> None:
        """Breaks connections, or holds requests or responses back, which arrive late, or are lost, or arrive after the
        client left. Of several nodes: those of one, or all.
        """
        way = self.choose.choice(("", "requests", "answers", "answers"))
        refuses, breaks = self.choose.random() < 0.4, self.choose.choice(("all", "clients", "none"))
        seconds = self.pace * self.choose.choice((0.05, 0.5, 1.5)) * (0.5 + self.choose.random())
        cut = self.proxies if self.choose.random() < 0.5 else [self.choose.choice(self.proxies)]
        nodes = [self.proxies.index(proxy) + 1 for proxy in cut]
        self._fault("cut", way=way, refuses=refuses, breaks=breaks, seconds=round(seconds, 3), nodes=nodes)
        for proxy in cut:
            proxy.refuse(refuses)
            if way:
                proxy.hold(way)
            else:
                proxy.cut()
        self.rest(seconds)
        for proxy in cut:
            if way and breaks != "none":
                proxy.cut(clients_only=breaks == "clients")
            proxy.release()
            proxy.refuse(False)
        self._fault("join")

    def _move(self) -> None:
        """Takes partitions offline, and online again with the next leader epoch. Coordinators load their logs again."""
        moved = self._some_partitions()
        self._fault("move", partitions=[f"{topic}-{index}" for topic, index in moved])
        there = [place for place in moved if self._set_offline(*place, True)]
        self.rest(self.choose.choice((0, 0.3)) * self.choose.random())
        assert all([self._set_offline(*place, False) for place in there]), f"{there} have no leader"
        self._fault("moved")

    def _some_partitions(self) -> list[tuple[str, int]]:
        places = [(topic, index) for topic, count in (self.topics | MOVED).items() for index in range(count)]
        return self.choose.sample(places, self.choose.choice((1, 2, 4)))

    def _some_node(self) -> int:
        return self.choose.randrange(len(self.proxies)) + 1

    def _node(self) -> None:
        """Stops a node: others lead its partitions and coordinate its groups. Sometimes they lead again as at first."""
        node = self._some_node()
        self._fault("node", node=node)
        assert self._control(f"nodes/{node}", running=False)
        self.rest(self.pace * self.choose.choice((0.1, 1, 3)) * (0.5 + self.choose.random()))
        assert self._control(f"nodes/{node}", running=True)
        if self.choose.random() < 0.3:
            assert self._control("spread")
        self._fault("joined", node=node)

    def _lead(self) -> None:
        """Makes other nodes the leaders of partitions."""
        for topic, partition in self._some_partitions():
            node = self._some_node()
            self._fault("lead", partition=f"{topic}-{partition}", node=node)
            self._control(
                "leaders", NOT_FOUND, CONFLICT, topic=topic, partition=partition, node=node
            )  # 409: no replica
            self._fault("led")

    def _reassign(self) -> None:
        """Gives partitions other replicas. Most of the leaders change."""
        nodes = range(1, len(self.proxies) + 1)
        targets = {place: self.choose.sample(nodes, self.choose.choice((2, 3))) for place in self._some_partitions()}
        self._fault("reassign", replicas={f"{topic}-{index}": ids for (topic, index), ids in targets.items()})
        asyncio.run(self._reassigned(targets))
        self._fault("reassigned")

    async def _reassigned(self, targets: dict[tuple[str, int], list[int]]) -> None:
        async with Admin(self.address) as admin:
            outcomes = await admin.alter_partition_reassignments(targets)
            errors = [error for error in outcomes.values() if error is not None]
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # an internal topic may not exist yet
            assert all(isinstance(error, Failure) and error.code == unknown for error in errors), errors
            end = time.monotonic() + PATIENCE_S
            while await admin.list_partition_reassignments():
                assert time.monotonic() < end, "a reassignment does not end"
                await asyncio.sleep(0.05)

    def _set_offline(self, topic: str, partition: int, offline: bool) -> bool:
        """Returns whether the partition exists: an internal topic may not exist yet."""
        return self._control("offline", NOT_FOUND, topic=topic, partition=partition, offline=offline)

    def _control(self, what: str, *refusals: int, **body: Any) -> bool:
        """Changes the topology. Returns whether that was possible: not if it is refused by one of these statuses."""
        url = f"http://{self.broker.control}/v1/topology/{what}"
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S):
                return True
        except urllib.error.HTTPError as error:
            if error.code not in refusals:
                raise
            return False

    def _living(self, *roles: str) -> list[Client]:
        return [one for one in self.clients if one.process is not None and (not roles or one.role in roles)]

    def _crash(self) -> None:
        for client in self.choose.sample(living := self._living(), min(len(living), self.choose.choice((1, 1, 3)))):
            assert client.process
            client.process.kill()

    def _zombie(self) -> None:
        """Stops a client, starts another in its place, and lets it continue."""
        if not (living := self._living("writer", "loop", "application") or self._living("member", "sharer")):
            return
        client = self.choose.choice(living)
        assert client.process
        label, process = client.label, client.process
        client.zombies.append((label, process))
        self._fault("zombie", client=label)
        with self.stopped(process):
            self.live(client)
            self.rest(self.pace * (0.5 + self.choose.random() * 3))

    # -- the end

    def finish(self) -> None:
        """Raises AssertionError if an operation does not finish."""
        self.rest(0.5)
        for client in self.clients:
            for label, process in client.zombies:
                if process.poll() is None:
                    process.kill()
                self._buried(label, process, client.name)
            client.zombies = []
        self.end("sender", "writer")
        last = self.read(LINE_PARTITIONS, COMMITTED_ONLY, note=False)
        sharing = sorted({client.more["group"] for client in self.clients if client.role == "sharer"})
        if sharing:
            self._drain()
            for group in sharing:
                self.recorder.ok("share_drained", group=group, topic=LINES)
        groups = sorted({client.more["group"] for client in self.clients if "group" in client.more})
        self.until(lambda: self._is_done(groups, last), lambda: f"not all is read: {last}, {self._committed(groups)}")
        for application in sorted(
            {client.more["application"] for client in self.clients if client.role == "application"}
        ):
            self._await_application(application, last)
        self.end("member", "loop", "application")
        partitions = [f"{topic}-{index}" for topic, count in self.topics.items() for index in range(count)]
        for isolation in (ALL, COMMITTED_ONLY):
            self.read(partitions, isolation)
        for group, offsets in self._committed(groups).items():
            self.recorder.ok("committed", group=group, offsets=offsets)
        for topic in sorted(self.topics.keys() - {LINES}):
            self.recorder.ok("drained", source=LINES, target=topic)

    def _await_application(self, application: str, last: dict[str, int]) -> None:
        """Waits until an application of Streams has read the topic, and then what it wrote to its own topic."""

        def await_offsets(places: dict[str, int]) -> None:
            done, committed = partial(self._is_done, [application], places), partial(self._committed, [application])
            self.until(done, lambda: f"{application} has not read all: {places}, {committed()}")

        await_offsets(last)
        inner = [f"{application}-keyed-repartition-{index}" for index in range(PARTITIONS)]
        await_offsets(self.read(inner, COMMITTED_ONLY, note=False))

    def _drain(self) -> None:
        """Waits until share groups deliver nothing more, and ends their members."""
        quiet_since = time.monotonic()
        with self.path.open("rb") as file:
            file.seek(0, os.SEEK_END)

            def is_quiet() -> bool:
                nonlocal quiet_since
                if b'"op":"share_fetch","records":{"' in file.read():
                    quiet_since = time.monotonic()
                quiet_s = time.monotonic() - quiet_since
                return quiet_s > STUCK_S or (quiet_s > QUIET_S and not asyncio.run(self._lags()))

            self.until(is_quiet, lambda: "share groups still deliver records")
        self.end("sharer")

    async def _lags(self) -> list[int]:
        """Returns the lags of the share groups where there is one."""
        groups = sorted({client.more["group"] for client in self.clients if client.role == "sharer"})
        async with Admin(self.address) as admin:
            found = [one for group in groups for one in (await admin.list_share_group_offsets(group)).values()]
        return [one.lag for one in found if isinstance(one, ShareOffset) and one.lag]

    def until(self, done: Callable[[], bool], complaint: Callable[[], str]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert not self.broken, self.broken[0]
            assert time.monotonic() < end, complaint()
            self.rest(0.1)

    def end(self, *roles: str) -> None:
        """Terminates the clients of these roles, and waits for them."""
        ending = [client for client in self.clients if client.role in roles]
        self.clients = [client for client in self.clients if client.role not in roles]
        for client in ending:
            if client.process is not None:
                client.process.terminate()
        for client in ending:
            if client.process is not None:
                try:
                    client.process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    client.process.kill()
                    self.broken.append(f"{client.label} does not end")
                self._buried(client.label, client.process, client.name)

    def _is_done(self, groups: list[str], last: dict[str, int]) -> bool:
        committed = self._committed(groups)
        return all(committed[group].get(place, 0) > offset for group in groups for place, offset in last.items())

    def _committed(self, groups: list[str]) -> dict[str, dict[str, int]]:
        admin = self._admin()
        found: dict[str, dict[str, int]] = {}
        for group in groups:
            response = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(
                PATIENCE_S
            )
            parts = [one for one in response.topic_partitions if one.offset >= 0]
            found[group] = {f"{one.topic}-{one.partition}": one.offset for one in parts}
        return found

    def _ends(self, partitions: list[str], isolation: IsolationLevel) -> dict[str, int]:
        admin = self._admin()
        wanted: dict[TopicPartition, Any] = {TopicPartition(*split(one)): OffsetSpec.latest() for one in partitions}
        found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=10)
        return {f"{one.topic}-{one.partition}": result.result(PATIENCE_S).offset for one, result in found.items()}

    def read(self, partitions: list[str], isolation: str, *, note: bool = True) -> dict[str, int]:
        """Reads everything to its end, into the history; returns the last offset of a record in each partition."""
        stable = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
        found: list[dict[str, int]] = []

        def is_still() -> bool:
            found[:] = [self._ends(partitions, level) for level in stable]
            return found[0] == found[1]

        self.until(is_still, lambda: f"transactions are open: {found}")
        ends = found[0]
        config = {"bootstrap.servers": self.address, "group.id": "nobody", "enable.auto.commit": False}
        more = {"isolation.level": isolation, "enable.partition.eof": True, "check.crcs": True, "log_level": 0}
        more["auto.offset.reset"] = "earliest"  # Streams deletes records that it has read from its own topic
        consumer = Consumer({**config, **more})
        last: dict[str, int] = {}
        try:
            consumer.assign([TopicPartition(*split(partition), 0) for partition in partitions])
            open_ends = {partition for partition in partitions if ends[partition]}
            end = time.monotonic() + PATIENCE_S
            while open_ends:
                assert time.monotonic() < end, f"nothing more comes before the ends of {open_ends}"
                records: dict[str, list[tuple[int, int]]] = {}
                for message in consumer.consume(CHUNK, 0.1):
                    partition = f"{message.topic()}-{message.partition()}"
                    if error := message.error():
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        if (message.offset() or 0) >= ends[partition]:
                            open_ends.discard(partition)
                        continue
                    offset = message.offset() or 0
                    value = int((message.value() or b"").partition(b":")[0])
                    records.setdefault(partition, []).append((offset, value))
                    last[partition] = offset
                if records:
                    end = time.monotonic() + PATIENCE_S
                    if note:
                        self.recorder.ok("read", isolation=isolation, records=records)
        finally:
            consumer.close()
        if note:
            self.recorder.ok("read_end", isolation=isolation, ends=ends)
        return last

    def close(self) -> None:
        """Kills all processes that still run, also after a failure."""
        for proxy in self.proxies:
            proxy.release()
            proxy.refuse(False)
        for client in self.clients:
            for _, process in [*client.zombies, *([("", client.process)] if client.process else [])]:
                if process.poll() is None:
                    process.kill()
                process.wait()
        self.recorder.close()
        try:
            self.broker.close()
        finally:
            for proxy in self.proxies:
                proxy.close()
