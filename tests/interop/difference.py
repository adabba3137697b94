"""The difference run: seeded random admin calls to an Apache Kafka and to ours of one release, with compared responses.

    OTTLA_DIFFERENCE_SEED=N     the seed (default: a new one, which is printed)
    OTTLA_DIFFERENCE_CALLS=N    how many calls to each release
    OTTLA_DIFFERENCE_APIS=A,B   nothing but these

`Eyes` replaces values of one broker alone (ids, ports, folders). Expected differences are in `reasons.REASONS`, and
are counted; every other one is a failure, and is written to out/interop/difference-X.txt with the request and both
responses.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections import Counter
from random import Random
from typing import Any

from call_values import CLUSTER, DIR, World, topic_sign
from random_calls import MUTATING, Call, Calls
from reasons import REASONS
from side_by_side import FENCE_NAME, PATIENCE_SECONDS, RELEASES, Fence, Pair, Side, both

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.schema import Value
from ottla_testing.interop.checks import OUT, Check, Failed

# Ours creates the coordinators' topics at the first write to them, Kafka at the first request for them.
_COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic
NEW_TOPIC = CreateTopicsRequest.CreatableTopic
ONE_PARTITION: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
_COMMIT = _COMMITTED.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
FIRST = [
    Call("CreateTopics", 4, CreateTopicsRequest(topics=[NEW_TOPIC(name="a", **ONE_PARTITION)])),
    Call("OffsetCommit", 2, OffsetCommitRequest(group_id="g0", topics=[_COMMITTED(name="a", partitions=[_COMMIT])])),
    Call("InitProducerId", 0, InitProducerIdRequest(transactional_id="t1", transaction_timeout_ms=60000)),
]
_BROKER = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
OF_BROKER = Call("DescribeConfigs", 1, DescribeConfigsRequest(resources=[_BROKER], include_synonyms=True))
CALLS = int(os.environ.get("OTTLA_DIFFERENCE_CALLS", "3500"))
SHOWN = 12  # failures in the report; all are in the file
# The fields that identify elements of a list, in this order.
IDENTITIES = (
    "name topic_name topic partition_index partition index group_id group_name resource_type resource_name "
    "key user entity entity_type pattern_type mechanism node_id broker_id log_dir log_dir_path path topic_partition "
    "principal host operation permission_type transactional_id api_key feature"
).split()
Difference = tuple[str, Any, Any]  # (path, theirs, ours)
_TIME_RANGE = re.compile(r"within \[(\d+), (\d+)\]")  # around the time at which the broker judges a batch
ABSENT = "<absent>"
NEW_ID = "an id that was not seen before"


class Eyes:
    """Makes one broker's requests and responses comparable: replaces values of its own by signs."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.cluster_id = ""
        self.other_port = 0
        """The port of a second listener, if there is one."""
        self._signs: dict[bytes, bytes] = {}
        self._ids: dict[bytes, bytes] = {}

    def know(self, sign: bytes, topic_id: bytes) -> None:
        """Replaces the id of a topic by that sign from now on."""
        self._signs[sign], self._ids[topic_id] = topic_id, sign

    def knows(self, topic_id: bytes) -> bool:
        return topic_id in self._ids

    def sent(self, value: Any) -> Any:
        """Returns a request with this broker's values in place of the signs."""
        if isinstance(value, Value):
            return type(value)(**{name: self.sent(getattr(value, name)) for name in value._fields})
        if isinstance(value, list):
            return [self.sent(one) for one in value]
        if isinstance(value, bytes):
            return self._signs.get(value, value)
        if isinstance(value, str):
            return value.replace(DIR, str(self._side.folder)).replace(CLUSTER, self.cluster_id)
        return value

    def seen(self, value: Any, name: str = "") -> Any:
        """Returns a response as plain dicts and lists, with lists in a fixed order: the reverse of `sent`."""
        if isinstance(value, Value):
            return {one: self.seen(getattr(value, one), one) for one in value._fields if one != "throttle_time_ms"}
        if isinstance(value, list):
            return sorted((self.seen(one) for one in value if not _is_fence(one)), key=repr)
        if isinstance(value, bytes | bytearray | memoryview):
            unknown = NEW_ID if name == "topic_id" and any(value) else bytes(value)
            return self._ids.get(bytes(value), unknown)
        if isinstance(value, str):
            value = value.replace(str(self._side.folder), DIR).replace(self._side.address, "ADDRESS")
            value = _TIME_RANGE.sub(lambda found: f"within {int(found[2]) - int(found[1])} ms", value)
            return value.replace(self.cluster_id, CLUSTER) if self.cluster_id else value
        if name in ("usable_bytes", "total_bytes") and value >= 0:  # of the disk, at that moment
            return "BYTES"
        if name == "port" and value in (self._side.client.port, self.other_port):
            return "PORT"
        return value


def _is_fence(value: Any) -> bool:
    return getattr(value, "resource_name", None) == FENCE_NAME


def differences(theirs: Any, ours: Any, path: str = "") -> list[Difference]:
    """Returns the differences of two responses, field by field; elements of lists are matched by the fields that
    identify them."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in {**theirs, **ours}:
            found += differences(theirs.get(name, ABSENT), ours.get(name, ABSENT), f"{path}.{name}")
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and theirs != ours:
        return _of_lists(theirs, ours, path)
    return [] if theirs == ours else [(path, theirs, ours)]


def _of_lists(theirs: list[Any], ours: list[Any], path: str) -> list[Difference]:
    left = {}
    for number, one in enumerate(ours):
        left.setdefault(_identity(one), []).append(number)
    found: list[Difference] = []
    for one in theirs:
        numbers = left.get(_identity(one))
        if numbers:
            found += differences(one, ours[numbers.pop(0)], f"{path}[{_shown_identity(one)}]")
        else:
            found.append((f"{path}[]", one, ABSENT))
    return found + [(f"{path}[]", ABSENT, ours[number]) for numbers in left.values() for number in numbers]


def _identity(one: Any) -> str:
    if not isinstance(one, dict):
        return repr(one)
    found = [one[name] for name in IDENTITIES if name in one]
    return repr(found if found and found[0] not in (None, "") else [found, one.get("topic_id")])


def _shown_identity(one: Any) -> str:
    return ",".join(str(one[name])[:40] for name in IDENTITIES if name in one) if isinstance(one, dict) else ""


class Run:
    """Calls to both brokers of a pair, and what came of them."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair = pair
        self.seed = seed
        self.world = World(pair.release)
        self.eyes = Eyes(pair.theirs), Eyes(pair.ours)
        self.fences = [Fence(pair.theirs.client)] if self.world.with_controller else []
        self.reasons: Counter[str] = Counter()
        self.count = 0
        self.known = 0  # topic ids
        self.held = ""  # the topics of both, at last
        self.per_api: Counter[str] = Counter()
        self.failures: list[str] = []
        self.kinds: Counter[str] = Counter()

    def begin(self) -> dict[int, tuple[int, int]]:
        """Makes the internal topics; what both advertise. Raises Failed."""
        ranges = []
        for side, eyes in zip((self.pair.theirs, self.pair.ours), self.eyes, strict=True):
            response = side.client.call(ApiVersionsRequest(), 0)
            ranges.append({one.api_key: (one.min_version, one.max_version) for one in response.api_keys})
            end = time.monotonic() + PATIENCE_SECONDS
            while any(
                side.client.call(FindCoordinatorRequest(key="x", key_type=kind), 1).error_code for kind in (0, 1)
            ):
                if time.monotonic() > end:
                    raise Failed(f"{side.name} has no coordinators")
                time.sleep(0.1)
            eyes.cluster_id = side.client.call(MetadataRequest(topics=[]), 4).cluster_id
        for call in FIRST:
            for side in (self.pair.theirs, self.pair.ours):
                end = time.monotonic() + PATIENCE_SECONDS
                # Kafka's coordinators may not be ready, its topic not known to the broker.
                while "error_code=0" not in str(response := side.client.call(call.request, call.version)):
                    if time.monotonic() > end:
                        raise Failed(f"{side.name} is not ready: {response}")
                    time.sleep(0.1)
        self.settle(FIRST[-1])
        return {
            key: (max(first, ranges[1][key][0]), min(last, ranges[1][key][1]))
            for key, (first, last) in ranges[0].items()
            if key in ranges[1]
        }

    def send_request(self, call: Call) -> tuple[Any, Any]:
        """Returns both responses in comparable form."""
        found = []
        for side, eyes in zip((self.pair.theirs, self.pair.ours), self.eyes, strict=True):
            try:
                found.append(eyes.seen(side.client.call(eyes.sent(call.request), call.version)))
            except (ConnectionError, TimeoutError) as error:
                found.append(f"no response: {type(error).__name__}")
        return found[0], found[1]

    def compare(self, call: Call) -> None:
        """Sends one call to both sides and compares the responses."""
        self.count += 1
        self.per_api[call.api] += 1
        theirs, ours = self.send_request(call)
        left = self.unexplained(call, theirs, ours)
        if call.api in MUTATING:
            self.settle(call)
        else:
            # A broker may apply a change a moment later: the request is repeated.
            for _ in range(3 if left else 0):
                time.sleep(0.05)
                theirs, ours = self.send_request(call)
                left = self.unexplained(call, theirs, ours)
                if not left:
                    break
        if left:
            self.fail(call, theirs, ours, left)

    def unexplained(self, call: Call, theirs: Any, ours: Any) -> list[Difference]:
        left = []
        for path, one, other in differences(theirs, ours):
            reason = REASONS.of(self.pair.release, call.api, path, one, other, call.request)
            if reason is None:
                left.append((path, one, other))
            else:
                self.reasons[reason] += 1
        return left

    def fail(self, call: Call, theirs: Any, ours: Any, left: list[Difference]) -> None:
        for path, one, other in left:
            self.kinds[f"{call.api}{_general(path)}: {str(one)[:150]!r} <> {str(other)[:150]!r}"] += 1
        listed = "\n".join(f"  {path}: {one!r} <> {other!r}" for path, one, other in left)
        self.failures.append(
            f"call {self.count} {call.api} v{call.version}, seed {self.seed}\n{listed}\n  request {call.request!r}\n"
            f"  theirs  {theirs!r}\n  ours    {ours!r}\n"
        )

    def settle(self, call: Call) -> None:
        """Waits until both sides show the present topics; if they never agree, deletes the topics."""
        for fence in self.fences:
            fence.wait()
        if not self.fences and call.api in ("AlterConfigs", "IncrementalAlterConfigs"):
            self.settle_configs()
        end = time.monotonic() + 3
        while not self.learn() or self.is_deleting():
            if time.monotonic() > end:
                self.kinds[f"the topics differ after {call.api}"] += 1
                result = f"{self.held}, {'' if not self.is_deleting() else 'some are being deleted, '}seed {self.seed}"
                self.failures.append(f"the topics differ after call {self.count} {call}: {result}\n")
                self.make_same()
                return
            time.sleep(0.02)

    def settle_configs(self) -> None:
        """Waits for a limited time until a broker with ZooKeeper has applied the changes of configs."""
        end = time.monotonic() + 1
        release = self.pair.release
        while any(
            REASONS.of(release, OF_BROKER.api, *one) is None for one in differences(*self.send_request(OF_BROKER))
        ):
            if time.monotonic() > end:
                return
            time.sleep(0.01)

    def is_deleting(self) -> bool:
        """Returns whether ZooKeeper still has a topic that no broker has any more."""
        if self.world.with_controller or not self.world.absent:
            return False
        topics = [NEW_TOPIC(name=name, **ONE_PARTITION) for name in self.world.absent]
        response = self.pair.theirs.client.call(CreateTopicsRequest(topics=topics, validate_only=True), 1)
        return any(topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS for topic in response.topics)

    def learn(self) -> bool:
        """Reads which topics exist, and returns whether both sides have the same."""
        found = []
        for side in (self.pair.theirs, self.pair.ours):
            response = side.client.call(MetadataRequest(topics=None), 10)
            found.append({one.name: one for one in response.topics})
        theirs, ours = found
        counts = [{name: len(one.partitions) for name, one in each.items()} for each in found]
        errors = [(name, p.partition_index, p.error_code) for name in theirs for p in theirs[name].partitions]
        errors = [one for one in errors if one[2]]
        self.held = f"{counts[0]} with errors {errors}, {counts[1]}"
        if counts[0] != counts[1] or errors:
            return False
        self.world.topics = counts[0]
        for name in sorted(theirs):
            ids = theirs[name].topic_id, ours[name].topic_id
            if not all(eyes.knows(one) for eyes, one in zip(self.eyes, ids, strict=True)):
                sign = topic_sign(self.known)
                self.known += 1
                if not theirs[name].is_internal:  # by ids topics are deleted
                    self.world.signs.append(sign)
                for eyes, one in zip(self.eyes, ids, strict=True):
                    eyes.know(sign, one)
        return True

    def make_same(self) -> None:
        """Deletes the topics, which differ. Raises Failed."""
        for side in (self.pair.theirs, self.pair.ours):
            response = side.client.call(MetadataRequest(topics=None), 10)
            names = [one.name for one in response.topics if not one.is_internal]
            side.client.call(DeleteTopicsRequest(topic_names=names, timeout_ms=20000), 5)
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.learn():
            if time.monotonic() > end:
                raise Failed("the brokers cannot be made the same again; " + self.failures[-1])
            time.sleep(0.05)

    def report(self) -> str:
        """Returns one line, and writes the file with all failures. Raises Failed."""
        where = OUT / f"difference-{self.pair.release}.txt"
        kinds = "".join(f"{count:5} {kind}\n" for kind, count in self.kinds.most_common())
        where.write_text(f"seed {self.seed}\n\n{kinds}\n" + "\n".join(self.failures))
        reasons = "; ".join(f"{reason} ({count})" for reason, count in sorted(self.reasons.items()))
        result = f"{self.count} calls of {len(self.per_api)} APIs, seed {self.seed}; for a reason: {reasons or '-'}"
        if self.failures:
            shown = "\n".join(f"{count:5} {kind}" for kind, count in self.kinds.most_common(SHOWN))
            raise Failed(f"{result}; {len(self.failures)} without, see {where}:\n{shown}")
        return result


def _general(path: str) -> str:
    """Returns a path without the names in it."""
    parts = path.split("[")
    return parts[0] + "".join("[]" + part.partition("]")[2] for part in parts[1:])


def run(release: str) -> str:
    seed = int(os.environ.get("OTTLA_DIFFERENCE_SEED") or secrets.randbelow(1 << 32))
    only = frozenset(filter(None, os.environ.get("OTTLA_DIFFERENCE_APIS", "").split(",")))
    with both(release) as pair:
        done = Run(pair, seed)
        calls = Calls(Random(seed), done.begin(), only)
        for _ in range(CALLS):
            done.compare(calls.next(done.world))
    return done.report()


CHECKS = [
    Check(f"random admin calls to Kafka {version} and to ours", lambda release=release: run(release))
    for release, version in RELEASES.items()
]
