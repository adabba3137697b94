"""Java clients of every age, and kafkajs, writing and reading through Ottla in each format: all read all.

Each check has one writer, which writes every codec that it has; then each client reads all that. What a reader gets is
what was written less what the formats on the way cannot hold. A client that this machine cannot have is missing, and
the check with it.
"""

from __future__ import annotations

import atexit
import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ottla_testing.clients.exchange import compare, expected, rows
from ottla_testing.clients.four_clients import create_topic
from ottla_testing.clients.line_clients import ClientError, LineClient, kafkajs
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.interop.checks import Check, Failed, Missing
from ottla_testing.interop.java_lines import java_client
from ottla_testing.old_environment import install_kafkajs

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NEWEST = "4.3"
ALL = ("0.8.2", "0.10.2", "1.1", "2.8", "3.9", "4.3", "kafkajs")


class Setting(NamedTuple):
    """A release to play, a topic's configs, the format that it stores, and the clients for it."""

    release: str
    configs: Mapping[str, Any]
    magic: int
    clients: Sequence[str]


SETTINGS = {
    "own profile": Setting("ottla", {}, 2, ALL),
    "2.8, message.format.version 0.9.0": Setting("2.8", {"message.format.version": "0.9.0"}, 0, ALL),
    "2.8, message.format.version 0.10.2": Setting("2.8", {"message.format.version": "0.10.2"}, 1, ALL),
    "2.8": Setting("2.8", {}, 2, ALL),
    "3.9": Setting("3.9", {}, 2, ALL),
    **{name: Setting(name, {}, 2, ("1.1", "2.8", "3.9", "4.3", "4.4", "kafkajs")) for name in ("4.3", "4.4")},
    # What 4.x clients dropped (KIP-896) they miss here.
    "0.10.2": Setting("0.10.2", {}, 1, ("0.8.2", "0.10.2", "1.1", "2.8", "3.9")),
    "0.8.2": Setting("0.8.2", {}, 0, ("0.8.2",)),
}
MAGICS = {"0.8.2": 0, "0.10.2": 1}  # the newest format that a client knows; 2 for all others


@cache
def client(name: str) -> LineClient:
    """Returns the process of a client, one for all checks. Raises Missing."""
    if name == "kafkajs":
        if missing := install_kafkajs():
            raise Missing(f"kafkajs: {missing}")
        made = kafkajs()
    else:
        made = java_client(name)
    atexit.register(made.close)
    return made


@cache
def broker(release: str) -> RunningBroker:
    """Returns the broker of a release, one for all checks."""
    folder = tempfile.TemporaryDirectory()
    made = RunningBroker(Path(folder.name), release)
    atexit.register(folder.cleanup)
    atexit.register(made.close)
    return made


def knows(name: str, codec: str) -> bool:
    """Returns whether a client reads and writes a codec: kafkajs needs native modules for the others."""
    if name == "kafkajs":
        return codec in ("none", "gzip", "snappy")
    return codec != "zstd" or name in ("2.8", "3.9", "4.3")


def settings_of(name: str, magic: int) -> dict[str, str]:
    """Returns the settings of a client: no idempotence where older formats, which have no sequences, are stored."""
    return {"enable.idempotence": "false"} if magic < 2 and name not in ("0.8.2", "0.10.2", "kafkajs") else {}


def run_writer(setting: str, writer: str) -> str:
    """Writes with one client and reads with all: a topic for each group of codecs, since some clients stop at an
    unknown one."""
    found = SETTINGS[setting]
    lacking: set[str] = set()
    read: list[str] = []
    codecs = [codec for codec in CODECS if knows(writer, codec) and (codec != "zstd" or found.magic == 2)]
    count = 0
    try:
        for group in (codecs[:3], codecs[3:4], codecs[4:]):
            if group:
                count += write_and_read(found, f"{writer} in {setting} {group[-1]}", writer, group, read, lacking)
    except (AssertionError, ClientError) as error:
        raise Failed(f"read: {read}, then: {error}") from None
    if lacking:
        raise Missing("; ".join(sorted(lacking)))
    return f"{count} records, {len(read)} readings: {', '.join(codecs)}, by {', '.join(dict.fromkeys(read))}"


def write_and_read(
    setting: Setting, name: str, writer: str, codecs: Sequence[str], read: list[str], lacking: set[str]
) -> int:
    """Returns the number of records of one topic; adds readers to `read`, and clients that this machine lacks to
    `lacking`."""
    topic = re.sub("[^a-z0-9.]+", "-", name)
    running = broker(setting.release)
    if not setting.release.startswith("0."):  # older ones create a topic at the first request for it
        create_topic(running.address, topic, **setting.configs)
    magic = min(MAGICS.get(writer, 2), setting.magic)
    written = [rows(number, headers=magic == 2) for number in range(len(codecs))]
    for codec, sent in zip(codecs, written, strict=True):
        client(writer).produce(running.address, topic, sent, codec, **settings_of(writer, setting.magic))
    count = sum(map(len, written))
    headers = list(running.stored(topic))
    if {header.magic for header in headers} != {setting.magic} or len({header.codec for header in headers}) != len(
        codecs
    ):
        raise Failed(f"stored: { ({(header.magic, header.codec) for header in headers}) }")
    for reader in setting.clients:
        if not all(knows(reader, codec) for codec in codecs):
            continue
        left = min(magic, MAGICS.get(reader, 2))
        wanted = [one for i, sent in enumerate(written) for one in expected(sent, i * len(sent), left)]
        try:
            seen = client(reader).consume(running.address, topic, 0, count)
        except Missing as missing:
            lacking.add(str(missing))
            continue
        compare(f"{reader} of {writer}", seen, wanted)
        read.append(reader)
    return count


def refused(release: str, name: str) -> str:
    """Checks a client that the release does not serve: it neither writes nor reads records."""
    running, one = broker(release), client(name)
    topic = f"{name}-refused-by-{release}"
    if not release.startswith("0."):
        create_topic(running.address, topic)
        client(NEWEST).produce(running.address, topic, rows(0, headers=False), "none")
    result = []
    for verb in ("produce", "consume"):
        try:
            if verb == "produce":
                one.produce(running.address, topic, rows(1, headers=False)[:1], "none", retries="0")
                raise Failed(f"{release} took what {name} wrote")
            if seen := one.consume(running.address, topic, 0, 1, 3):
                raise Failed(f"{name} read {seen} of {release}")
            result.append("consume: nothing came")
        except ClientError as error:
            result.append(f"{verb}: {str(error)[:160]}")
    stored = sum(header.record_count for header in running.stored(topic))
    if stored != (0 if release.startswith("0.") else len(rows(0, headers=False))):
        raise Failed(f"{stored} records are stored")
    return "refused, as it must be; " + "; ".join(result)


def named(client_name: str) -> str:
    return client_name if client_name == "kafkajs" else f"Java {client_name}"


CHECKS = [
    *(
        Check(f"{named(writer)} writes and all read, {setting}", lambda s=setting, w=writer: run_writer(s, w))
        for setting, found in SETTINGS.items()
        for writer in found.clients
    ),
    *(Check(f"Java {name} with 4.3", lambda name=name: refused("4.3", name)) for name in ("0.8.2", "0.10.2")),
    Check("Java 4.3 with 0.10.2", lambda: refused("0.10.2", "4.3")),
]
