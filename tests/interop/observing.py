"""Our recordings, read by tshark, Debian's Wireshark: all frames are Kafka, complete, with correct checksums, and each
request is there.

Clients' sessions and all calls of their admin clients are recorded as pcapng. tshark supports the versions of some
years ago; newer ones are recognised by API and version in its own output. Where it misreads a version that it claims to
support, `MISREAD` has the bytes and their wrong meaning; any other frame is a failure.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker import Embedded
from ottla.broker.recording.decoding import request_value, response_value
from ottla.broker.recording.exchange import Exchange
from ottla.broker.recording.files import read_recording
from ottla.protocol.apis import api_keys, name_of
from ottla_testing.clients.recorded_sessions import SESSIONS
from ottla_testing.interop.checks import OUT, Check, Failed, Missing

# tshark 4.0 reads everything that clients use with 2.4; with the newest release hardly more than old clients' requests.
RELEASES = ("2.4", "3.9", "4.3")
ADMINS = ("admin_confluent", "admin_kafka_python", "admin_aiokafka")
FIELDS = (
    "tcp.dstport",
    "tcp.stream",
    "kafka.api_key",
    "kafka.api_version",
    "kafka.correlation_id",
    "_ws.malformed",
    "_ws.expert.message",
    "tcp.checksum.status",
    "ip.checksum.status",
)
GOOD = "1"  # a checksum's status
UNKNOWN = re.compile(r"Unknown \d+ API key")
DAMAGE = re.compile(r"[Mm]alformed|does not end at the pdu length offset")
BYTES_READ_AS_NONE = "it takes no bytes where an older version has some, and the rest for what comes next"
# (API, whose, versions): what tshark 4.0 makes of it.
MISREAD: dict[tuple[str, str, tuple[int, ...]], str] = {
    ("JoinGroup", "request", (5,)): BYTES_READ_AS_NONE,
    ("JoinGroup", "answer", (5,)): BYTES_READ_AS_NONE,
    ("SyncGroup", "request", (3,)): BYTES_READ_AS_NONE,
    ("SyncGroup", "answer", (3,)): BYTES_READ_AS_NONE,
    ("CreateTopics", "request", (1, 2, 3, 4, 5)): "it takes a partition's list of replicas for one number",
    ("CreatePartitions", "request", (0, 1)): "it takes a partition's list of replicas for one number",
    ("Metadata", "request", (9,)): "librdkafka leaves three bytes after a request for all topics (its issue 5049)",
    ("DeleteAcls", "answer", (0, 1)): "it passes over a filter's error",
    ("ElectLeaders", "request", (2,)): "it passes over the sizes of compact texts in lists",
    ("AlterPartitionReassignments", "request", (0,)): "it passes over the sizes of compact texts in lists",
    ("ListPartitionReassignments", "request", (0,)): "it knows no null for a list of topics",
    ("WriteTxnMarkers", "answer", (0,)): "it reads a throttle time, which that response has in no version",
}


class Frame(NamedTuple):
    """One packet of Kafka, as tshark prints it."""

    is_request: bool
    stream: str
    api: str
    version: int
    correlation_id: str
    summary: str
    is_damaged: bool
    is_too_new: bool


def tshark() -> str:
    """Returns the path of the program. Raises Missing."""
    found = shutil.which("tshark")
    if found is None:
        raise Missing("no tshark here; `make system-packages` installs it")
    return found


def tshark_rows(program: str, path: str, port: str) -> list[list[str]]:
    """Returns the values of FIELDS of each packet."""
    command = [program, "-r", path, "-d", f"tcp.port=={port},kafka", "-o", "tcp.check_checksum:TRUE"]
    command += ["-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=/t", "-E", "aggregator=|"]
    for field in FIELDS:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"tshark: {done.stderr.strip()}")
    return [line.split("\t") for line in done.stdout.splitlines()]


def frames(rows: list[list[str]], port: str) -> Iterator[Frame]:
    """Yields the packets with a request or a response; a response has the API and version of its request."""
    requested: dict[tuple[str, str], tuple[str, int]] = {}
    for target, stream, key, version, correlation_id, malformed, experts, *_ in rows:
        if not correlation_id:
            continue
        is_request = target == port
        place = stream, correlation_id
        if is_request:
            requested[place] = name_of(int(key)), int(version)
        if place not in requested:
            raise Failed(f"a response without a request, on stream {stream}, id {correlation_id}")
        api, number = requested[place]
        texts = experts.split("|")
        supported = [text for text in texts if text.startswith(f"Unsupported {OTHER_NAMES.get(api, api)} version")]
        unknown = api != "ApiVersions" and any(UNKNOWN.fullmatch(text) for text in texts)
        damaged = bool(malformed) or any(DAMAGE.search(text) for text in texts)
        yield Frame(is_request, stream, api, number, correlation_id, experts, damaged, bool(supported) or unknown)


OTHER_NAMES = {"ListOffsets": "Offsets", "OffsetForLeaderEpoch": "OffsetForLeaderEpoch"}


class Verdict:
    """The result of checking all frames of a recording."""

    def __init__(self) -> None:
        self.whole = 0
        self.too_new: Counter[str] = Counter()
        self.misread: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()
        self.failures: list[str] = []

    def take(self, frame: Frame, exchange: Exchange, unread: set[tuple[str, str]]) -> None:
        """Adds one frame; `unread` are the requests that tshark could not read, whose responses it cannot read
        either."""
        whose = "request" if frame.is_request else "answer"
        name = f"{frame.api} v{frame.version}"
        place = frame.stream, frame.correlation_id
        if (
            not frame.is_damaged
            and not frame.is_too_new
            and (frame.is_request or "Request missing" not in frame.summary)
        ):
            self.whole += 1
            return
        if (request_value if frame.is_request else response_value)(exchange) is None:
            self.failures.append(f"{name} {whose}: not even we can read it")
        if frame.is_too_new:
            self.too_new[name] += 1
            unread.add(place)
            return
        if not frame.is_request and place in unread:
            self.unmatched[frame.api] += 1
            return
        for (api, of, versions), reason in MISREAD.items():
            if (api, of) == (frame.api, whose) and frame.version in versions:
                self.misread[f"{name} {whose}: {reason}"] += 1
                if frame.is_request:
                    unread.add(place)
                return
        self.failures.append(f"{name} {whose}, stream {frame.stream}, id {frame.correlation_id}: {frame.summary}")


def record(release: str, path: str) -> str:
    """Records clients' sessions and admin calls in a file; returns the broker's port."""
    with Embedded(release, record=path) as broker:
        for number, session in enumerate(SESSIONS.values()):
            session(broker.bootstrap, f"session-{number}")
        for module in ADMINS:
            client = importlib.import_module(module)
            with client.opened(broker.bootstrap) as admin:
                for call in client.CALLS:
                    with contextlib.suppress(Exception):  # much of it is what a broker refuses
                        call.make(admin)
        return broker.bootstrap.rpartition(":")[2]


def run(release: str) -> str:
    """Makes and checks one recording of everything, as one release."""
    program = tshark()
    path = str(OUT / f"recorded-{release}.pcapng")
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)
    port = record(release, path)
    recording = read_recording(path)
    if recording.damage or recording.dropped:
        raise Failed(f"the recording is not whole: {recording.damage[:3]}, dropped {recording.dropped}")
    rows = tshark_rows(program, path, port)
    bad = [row for row in rows if row[-2:] != [GOOD, GOOD]]
    if bad:
        raise Failed(f"{len(bad)} of {len(rows)} packets have a wrong checksum")
    found = list(frames(rows, port))
    requests = sum(frame.is_request for frame in found)
    if requests != len(recording.exchanges):
        raise Failed(f"{requests} requests, where the recording has {len(recording.exchanges)}")
    ours = iter(recording.exchanges)
    by_place: dict[tuple[str, str], Exchange] = {}
    verdict = Verdict()
    unread: set[tuple[str, str]] = set()
    for frame in found:
        if frame.is_request:
            exchange = next(ours)
            if (exchange.api_key, exchange.api_version) != (api_keys()[frame.api.lower()], frame.version):
                raise Failed(f"{frame.api} v{frame.version} where the recording has {exchange}")
            by_place[frame.stream, frame.correlation_id] = exchange
        verdict.take(frame, by_place[frame.stream, frame.correlation_id], unread)
    if verdict.failures:
        raise Failed("\n".join([f"{len(verdict.failures)} frames:", *verdict.failures[:20]]))
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()[2]
    new = ", ".join(f"{name} ({count})" for name, count in sorted(verdict.too_new.items()))
    misread = "; ".join(f"{name} ({count})" for name, count in sorted(verdict.misread.items()))
    text = f"{requests} requests, {len(found)} frames, {verdict.whole} dissected whole"
    text += f", {verdict.unmatched.total()} responses to requests that it could not read"
    return f"{text}; too new for tshark {version}: {new or '-'}; misread by it: {misread or '-'}"


CHECKS = [
    Check(f"tshark reads a recording of three clients, as {release}", lambda release=release: run(release))
    for release in RELEASES
]
