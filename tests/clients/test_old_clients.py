"""Clients older or newer than the broker: kafka-python 2.0.2 as 0.8.2 to 0.10.1, librdkafka with a fallback, kafkajs.

Each reads exactly what was written, except for fields that a format on the way cannot hold: v0 has no timestamps, v0
and v1 have no headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from ottla.protocol.records.compression import Codec
from ottla_testing.clients.exchange import compare, expected, rows
from ottla_testing.clients.line_clients import ClientError, Librdkafka, LineClient, kafka_python_2, kafkajs
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.old_environment import has_kafkajs

pytestmark = [pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4")
NO_LZ4 = {"kafkajs"}  # its lz4 codec is a native module
Client = LineClient | Librdkafka


class Setting(NamedTuple):
    """A broker and a topic: the release, the configs, the stored format, and its clients, the newest last."""

    release: str
    configs: Mapping[str, str]
    magic: int
    clients: Sequence[str]


OLD = ("kafka-python 0.8.2", "kafka-python 0.9", "kafka-python 0.10", "kafka-python 0.10.1")
FALLBACKS = ("librdkafka 0.8.2", "librdkafka 0.9.0", "librdkafka 0.10.0")
NODE = ("kafkajs",) if has_kafkajs() else ()
ALL = (*OLD, *FALLBACKS, *NODE, "librdkafka")
SETTINGS = {
    "own profile": Setting("ottla", {}, 2, ALL),
    "2.8 with v0": Setting("2.8", {"message.format.version": "0.9.0"}, 0, ALL),
    "2.8 with v1": Setting("2.8", {"message.format.version": "0.10.2"}, 1, ALL),
    "2.8 with v2": Setting("2.8", {}, 2, ALL),
    "3.9, v0 without effect": Setting("3.9", {"message.format.version": "0.9.0"}, 2, ALL),
    "0.8.2": Setting("0.8.2", {}, 0, (*OLD[:1], *FALLBACKS[:1])),
    "0.9": Setting("0.9", {}, 0, (*OLD[:2], *FALLBACKS[:2])),
    "0.10.2": Setting("0.10.2", {}, 1, (*OLD, *FALLBACKS, "librdkafka")),
}
# The newest format that a client writes and reads without a limit by the broker: by Produce and Fetch version.
MAGICS = {"kafka-python 0.8.2": 0, "kafka-python 0.9": 0, "kafka-python 0.10": 1, "kafka-python 0.10.1": 1}
MAGICS |= {"librdkafka 0.8.2": 0, "librdkafka 0.9.0": 0}


def client(name: str) -> Client:
    """Returns a new client by its name in the lists above."""
    kind, _, version = name.partition(" ")
    if kind == "kafkajs":
        return kafkajs()
    return kafka_python_2(version) if kind == "kafka-python" else Librdkafka(version or None)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RunningBroker]]:
    """`brokers(release)` returns this process's broker of that release."""
    running: dict[str, RunningBroker] = {}

    def of(release: str) -> RunningBroker:
        if release not in running:
            running[release] = RunningBroker(tmp_path_factory.mktemp(f"release-{release}"), release)
        return running[release]

    yield of
    for one in running.values():
        one.close()


def visit(name: str, setting: Setting, broker: RunningBroker, topic: str) -> None:
    """One client writes with each codec and reads it back; the newest client reads that; and the other way round."""
    new = client(setting.clients[-1])
    one = client(name)
    own_magic = min(MAGICS.get(name, 2), setting.magic)
    codecs = [codec for codec in CODECS if codec != "lz4" or name not in NO_LZ4]
    try:
        kept: list[tuple[object, ...]] = []
        for number, codec in enumerate(codecs):
            sent = rows(number, headers=own_magic == 2)
            offsets = one.produce(broker.address, topic, sent, codec)
            assert offsets == list(range(len(kept), len(kept) + len(sent))), (name, codec, offsets)
            kept += expected(sent, len(kept), own_magic)
        compare(f"{name}, of its own", one.consume(broker.address, topic, 0, len(kept)), kept)
        compare(f"the newest client, of {name}", new.consume(broker.address, topic, 0, len(kept)), kept)
        stored = list(broker.stored(topic))
        assert {header.magic for header in stored} == {setting.magic}
        assert {header.codec for header in stored} == {Codec[codec.upper()] for codec in codecs}
        # From the middle of the second codec's records: the batch is sent whole, and records below the offset are
        # skipped.
        start = len(rows(0, headers=False)) + 7
        compare(
            f"{name}, from offset {start}", one.consume(broker.address, topic, start, len(kept) - start), kept[start:]
        )
        first = len(kept)
        for number, codec in enumerate(codecs):
            sent = rows(10 + number, headers=setting.magic == 2)
            new.produce(broker.address, topic, sent, codec)
            kept += expected(sent, len(kept), own_magic)
        found = one.consume(broker.address, topic, first, len(kept) - first)
        compare(f"{name}, of the newest client", found, kept[first:])
    finally:
        one.close()


@pytest.mark.parametrize("setting", SETTINGS)
def test_clients_of_every_age_read_their_own_and_other_records(
    setting: str, brokers: Callable[[str], RunningBroker], create: Callable[..., str]
) -> None:
    found = SETTINGS[setting]
    broker = brokers(found.release)
    names = {name: f"{name} of {setting}".replace(" ", "-").replace(",", "") for name in found.clients}
    if not found.release.startswith("0."):  # older ones create a topic if a client requests its metadata
        for topic in names.values():
            create(broker.address, topic, **found.configs)
    with ThreadPoolExecutor(len(names)) as pool:  # a client mostly waits
        visits = [pool.submit(visit, name, found, broker, topic) for name, topic in names.items()]
        for one in visits:
            one.result()


def resume(one: LineClient, address: str, topic: str, group: str) -> None:
    """Continues as the next member of a group from the committed offsets."""
    one.produce(address, topic, rows(1, headers=False), "gzip")
    for first in (0, 10, 20):
        found = one.consume(address, topic, 0, 10, group_id=group)
        assert [record.offset for record in found] == list(range(first, first + 10)), (one.name, group)


@pytest.mark.parametrize("release", ["ottla", "2.8", "0.9"])
@pytest.mark.parametrize("version", ["0.8.2", "0.9"])
def test_groups_of_old_clients_continue_at_their_commits(
    version: str, release: str, brokers: Callable[[str], RunningBroker], create: Callable[..., str]
) -> None:
    """As 0.8.2 it commits without membership; from 0.9 on it is a member."""
    broker, one = brokers(release), kafka_python_2(version)
    topic = f"group-of-{version}-{release}"
    try:
        if release != "0.9":
            create(broker.address, topic)
        resume(one, broker.address, topic, f"of {topic}".replace(" ", "-"))
    finally:
        one.close()


@pytest.mark.parametrize("name", ["kafka-python 0.8.2", "kafka-python 0.10", "librdkafka 0.8.2", "librdkafka 0.9.0"])
def test_clients_without_the_newest_format_are_refused_by_4_x(
    name: str, brokers: Callable[[str], RunningBroker], create: Callable[..., str]
) -> None:
    """The broker closes the connection at their Produce and Fetch; nothing is written or read."""
    broker = brokers("4.3")
    topic = create(broker.address, f"{name} shut out".replace(" ", "-"))
    new, one = Librdkafka(), client(name)
    new.produce(broker.address, topic, rows(1, headers=True), "gzip")
    hasty = {"message.timeout.ms": "2000"} if isinstance(one, Librdkafka) else {"retries": "0"}
    try:
        with pytest.raises(ClientError):
            one.produce(broker.address, topic, rows(2, headers=False)[:1], "none", **hasty)
        try:
            assert one.consume(broker.address, topic, 0, 1, 2) == []
        except ClientError as error:
            assert str(error)
    finally:
        one.close()
    kept = expected(rows(1, headers=True), 0, 2)
    compare("the newest client", new.consume(broker.address, topic, 0, len(kept)), kept)
    assert {header.magic for header in broker.stored(topic)} == {2}
    assert sum(header.record_count for header in broker.stored(topic)) == len(kept)
