"""The client ledger: recorded from real connections, persisted, bounded, and without effect on requests."""

from __future__ import annotations

import asyncio
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ottla.broker.clock import ManualClock
from ottla.broker.logs import get_logger
from ottla.broker.metrics import client_ledger
from ottla.broker.metrics.client_ledger import (
    CLIENT_PRINCIPALS_MAX,
    DAMAGED_SUFFIX,
    FILE_NAME,
    LAST_SEEN_WRITE_MS,
    NEWS_EVERY_MS,
    SMALL_ENTRIES,
    SOON_MS,
    TEXT_MAX,
    TICK_MS,
    CallUse,
    ClientLedger,
    DamagedFile,
    Seen,
    SeenClient,
    Use,
    from_bytes,
    to_bytes,
)
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch, legacy
from ottla.protocol.schema import Versions
from ottla.storage.io.files import DiskFile, DiskFiles
from ottla_testing.broker.harness import fetch, frame, ping, records, running
from ottla_testing.patience import PATIENCE_S

START_MS = 1_700_000_000_000
OFFERED = {0: Versions(0, 13), 1: Versions(0, 18), 3: Versions(0, 13), 18: Versions(0, 4)}


def on_disk(folder: Path) -> dict[str, Any]:
    """Returns the clients in the file by (id, library name)."""
    value = json.loads((folder / FILE_NAME).read_text())
    value["clients"] = {(client["client_id"], client["software_name"]): client for client in value["clients"]}
    return value


def calls(client: dict[str, Any]) -> set[tuple[int, int]]:
    return {(call["api_key"], call["version"]) for call in client["calls"]}


def hello(name: str, version: str = "1.0") -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


def logged() -> Any:
    """Captures the log events of a block."""
    get_logger()  # configures structlog, which the capture then replaces
    return capture_logs()


def ledger(folder: Path, files: DiskFiles | None = None, clock: ManualClock | None = None) -> ClientLedger:
    return ClientLedger.open(files or DiskFiles(), str(folder), OFFERED, clock or ManualClock())


def noted(kept: ClientLedger) -> dict[str | None, SeenClient]:
    return {client.client_id: client for client in kept.seen.clients.values()}


# --- connections


async def test_calls_are_recorded_with_their_client_library(tmp_path: Path) -> None:
    listeners = {
        "listeners": "IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    }
    async with running(tmp_path, overrides=listeners) as broker:
        reported, silent = await broker.client(0), await broker.client(1)
        await reported.call(hello("my-client", "2.6"), 3, "app")
        await reported.call(MetadataRequest(topics=[]), 9, "app")
        await reported.call(fetch(), 11, "other")
        await silent.call(MetadataRequest(topics=[]), 1, "app")
        broker.clock.advance(TICK_MS)
        found = on_disk(tmp_path)
    assert (found["version"], found["complete"], found["written_ms"]) == (1, True, START_MS + SOON_MS)
    app = found["clients"]["app", "my-client"]
    assert (app["listener"], app["software_version"], app["asks_versions"]) == ("IN", "2.6", True)
    assert calls(app) == {(18, 3), (3, 9)}
    assert app["calls"][0]["first_seen_ms"] == app["calls"][0]["last_seen_ms"] == START_MS
    assert calls(found["clients"]["other", "my-client"]) == {(1, 11)}
    alone = found["clients"]["app", None]
    assert (alone["listener"], alone["asks_versions"], calls(alone)) == ("OUT", False, {(3, 1)})
    assert len(found["clients"]) == 3


async def test_client_without_library_name_negotiates_versions(tmp_path: Path) -> None:
    """ApiVersions below v3 has no library name. A name that KIP-511 forbids is not recorded."""
    async with running(tmp_path) as broker:
        client = await broker.client()
        assert (await client.call(hello("bad name"), 3, "app")).error_code == 42
        await client.call(ping(), 0, "app")
        await client.call(MetadataRequest(topics=[]), 4, None)
        (app, unnamed) = broker.state.clients.seen.clients.values()
        assert (app.client_id, app.software_name, app.negotiates_versions, set(app.calls)) == (
            "app",
            None,
            True,
            {(18, 0)},
        )
        assert (unnamed.client_id, set(unnamed.calls)) == ("", {(3, 4)})


@pytest.mark.parametrize(
    ("release", "key", "version"), [("4.0", 0, 2), ("4.0", 1, 3), ("ottla", 999, 0), ("0.9", 18, 0)]
)
async def test_refused_call_is_recorded(tmp_path: Path, release: str, key: int, version: int) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        await client.send_bytes(b"\0\0\0\x0e" + key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\0\4late")
        assert await client.is_closed()
        broken = await broker.client()  # its client id does not fit into the request
        await broken.send_bytes(b"\0\0\0\x0e" + key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\0\5late")
        assert await broken.is_closed()
    (client,) = on_disk(tmp_path)["clients"].values()
    (call,) = client["calls"]
    assert (client["client_id"], call["api_key"], call["version"], call["refused_ms"]) == (
        "late",
        key,
        version,
        START_MS,
    )
    assert client["asks_versions"] == (key == 18)


async def test_unsupported_api_versions_request_creates_no_separate_client(tmp_path: Path) -> None:
    """It gets error 35, and is repeated in a supported version."""
    async with running(tmp_path) as broker:
        client = await broker.client()
        await client.send_bytes(frame(ping(), 0, 1, "new")[:6] + b"\0\x63" + frame(ping(), 0, 1, "new")[8:])
        await client.receive_bytes()
        assert not broker.state.clients.seen.clients
        await client.call(hello("newer"), 4, "new")
        assert list(noted(broker.state.clients)) == ["new"]


async def test_unparsable_request_is_not_recorded(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        whole = frame(MetadataRequest(topics=None), 9, 1, "cut")
        await client.send_bytes((len(whole) - 5).to_bytes(4) + whole[4:-1])
        assert await client.is_closed()
        assert not broker.state.clients.seen.clients


def test_record_formats_are_recorded_by_version(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    library = kept.library("PLAINTEXT")

    def send(version: int, data: Any) -> None:
        kept.note_records(library, "app", version, data)
        kept.note_records(library, "app", version, memoryview(bytes(data)))

    found = [batch.Record(0, START_MS, None, b"value" * 20, ())]
    for codec in range(5):
        send(9, batch.build(found, codec=codec))
    for codec in range(4):
        send(2, legacy.build(found, magic=1, codec=codec))
        send(1, legacy.build(found, magic=0, codec=codec))
    send(9, b"")
    send(9, bytes(22))
    send(9, bytes(16) + b"\x03" + bytes(50))  # no such format
    (client,) = kept.seen.clients.values()
    assert set(client.produced) == {
        *((9, 2, codec) for codec in range(5)),
        *((2, 1, codec) for codec in range(4)),
        *((1, 0, codec) for codec in range(4)),
    }


async def test_was_newest_depends_on_the_offered_versions(tmp_path: Path) -> None:
    async with running(tmp_path, release="0.10.0") as broker:
        client = await broker.client()
        await client.call(ping(), 0, "app")
        await client.call(MetadataRequest(topics=None), 1, "app")
        await client.call(MetadataRequest(topics=[]), 0, "app")
    assert {(c["version"], c["was_newest"]) for c in on_disk(tmp_path)["clients"]["app", None]["calls"][1:]} == {
        (1, True),
        (0, False),
    }
    async with running(tmp_path) as broker:
        client = await broker.client()
        await client.call(MetadataRequest(topics=None), 1, "app")
    (call,) = [c for c in on_disk(tmp_path)["clients"]["app", None]["calls"] if (c["api_key"], c["version"]) == (3, 1)]
    assert call["was_newest"] is False, "v13 was offered, and it used v1"


async def test_real_clients(tmp_path: Path) -> None:
    """kafka-python and confluent-kafka send their names, aiokafka does not; each is one client."""
    with warnings.catch_warnings():  # they emit warnings on import
        warnings.simplefilter("ignore", DeprecationWarning)
        import confluent_kafka
        from aiokafka import AIOKafkaProducer
        from kafka import KafkaProducer

    async with running(tmp_path, clock=ManualClock(time.time_ns() // 1_000_000)) as broker:
        address = f"127.0.0.1:{broker.ports[0]}"
        await broker.topic("t")

        def blocking() -> None:
            producer = KafkaProducer(bootstrap_servers=address, client_id="kp", compression_type="gzip")
            producer.send("t", b"x" * 500).get(PATIENCE_S)
            producer.close()
            other = confluent_kafka.Producer({"bootstrap.servers": address, "client.id": "ck"})
            other.produce("t", b"x")
            assert other.flush(PATIENCE_S) == 0

        await asyncio.to_thread(blocking)
        async with AIOKafkaProducer(bootstrap_servers=address, client_id="ak") as aio:
            await aio.send_and_wait("t", b"x")
    found = on_disk(tmp_path)["clients"]
    assert set(found) == {("kp", "kafka-python"), ("ck", "confluent-kafka-python"), ("ak", None)}
    for client in found.values():
        assert client["asks_versions"]
        assert {0, 3, 18} <= {key for key, _ in calls(client)}


# --- times and the file


async def test_file_is_written_after_news_and_at_shutdown(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    async with running(tmp_path) as broker:
        assert not path.exists()
        broker.clock.advance(TICK_MS - 1)
        assert not path.exists()
        broker.clock.advance(1)
        assert on_disk(tmp_path)["clients"] == {}
        path.unlink()
        client = await broker.client()
        broker.clock.advance(5 * TICK_MS)
        assert not path.exists(), "written without news"
        await client.call(ping(), 0, "app")
        broker.clock.advance(TICK_MS)
        assert calls(on_disk(tmp_path)["clients"]["app", None]) == {(18, 0)}
        path.unlink()
        await client.call(ping(), 0, "app")
        broker.clock.advance(TICK_MS)
        assert not path.exists(), "written for changed times only"
        broker.clock.advance(LAST_SEEN_WRITE_MS)
        written = on_disk(tmp_path)["clients"]["app", None]["calls"][0]
        assert (written["first_seen_ms"], written["last_seen_ms"]) == (START_MS + 6 * TICK_MS, START_MS + 7 * TICK_MS)
        await client.call(ping(), 0, "app")
        stop_ms = broker.clock.now_ms()
    assert on_disk(tmp_path)["clients"]["app", None]["calls"][0]["last_seen_ms"] == stop_ms
    assert sorted(p.name for p in tmp_path.iterdir() if "clients" in p.name) == [FILE_NAME]


async def test_news_of_a_small_file_is_written_within_a_second(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        broker.clock.advance(NEWS_EVERY_MS)
        client = await broker.client()
        await client.call(ping(), 0, "first")
        broker.clock.advance(SOON_MS)
        assert set(on_disk(tmp_path)["clients"]) == {("first", None)}
        await client.call(ping(), 0, "second")
        await client.call(ping(), 0, "third")
        broker.clock.advance(SOON_MS)
        assert set(on_disk(tmp_path)["clients"]) == {("first", None)}, "not at every request"
        broker.clock.advance(NEWS_EVERY_MS - SOON_MS)
        assert {name for name, _ in on_disk(tmp_path)["clients"]} == {"first", "second", "third"}


def test_news_is_written_while_the_broker_clock_is_stopped(tmp_path: Path) -> None:
    stands, waits = ManualClock(), ManualClock()
    kept = ClientLedger.open(DiskFiles(), str(tmp_path), OFFERED, stands, waits)
    waits.advance(NEWS_EVERY_MS)
    kept.note(kept.library("L"), "app", 3, 9)
    waits.advance(SOON_MS)
    assert set(on_disk(tmp_path)["clients"]) == {("app", None)}
    kept.close()
    waits.advance(10 * TICK_MS)


def test_news_of_a_large_file_waits_for_the_tick(tmp_path: Path) -> None:
    clock = ManualClock()
    kept = ledger(tmp_path, clock=clock)
    for number in range(SMALL_ENTRIES // 100 + 1):
        for key in range(1, 102):
            kept.note(kept.library("L"), f"c{number}", key, 0)
    clock.advance(NEWS_EVERY_MS)
    assert (tmp_path / FILE_NAME).exists()
    before = on_disk(tmp_path)["written_ms"]
    kept.note(kept.library("L"), "late", 3, 9)
    clock.advance(NEWS_EVERY_MS)
    assert on_disk(tmp_path)["written_ms"] == before
    clock.advance(TICK_MS)
    assert ("late", None) in on_disk(tmp_path)["clients"]
    kept.close()


async def test_repeated_request_costs_one_set_lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        noting: list[tuple[int, int]] = []
        note = ClientLedger._note

        def counted(self: ClientLedger, library: Any, client_id: str, key: int, version: int, refused: bool) -> None:
            noting.append((key, version))
            note(self, library, client_id, key, version, refused)

        monkeypatch.setattr(ClientLedger, "_note", counted)
        for _ in range(3):
            await client.call(hello("x"), 3, "app")
            await client.call(MetadataRequest(topics=[]), 9, "app")
        assert noting == [(18, 3), (3, 9)]
        other = await broker.client()  # connections of the same library share the set of recorded entries
        await other.call(hello("x"), 3, "app")
        await other.call(MetadataRequest(topics=[]), 9, "app")
        assert len(noting) == 2
        broker.clock.advance(TICK_MS)
        await client.call(MetadataRequest(topics=[]), 9, "app")
        assert noting[2:] == [(3, 9)]


async def test_restart_keeps_recorded_clients(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await client.call(MetadataRequest(topics=[]), 9, "first")
        await client.call(MetadataRequest(topics=[]), 9, "both")
    async with running(tmp_path, clock=ManualClock(START_MS + 1000)) as broker:
        client = await broker.client()
        await client.call(MetadataRequest(topics=[]), 9, "both")
        await client.call(MetadataRequest(topics=[]), 8, "both")
        await client.call(MetadataRequest(topics=[]), 9, "second")
    found = on_disk(tmp_path)["clients"]
    assert {key: calls(value) for key, value in found.items()} == {
        ("first", None): {(3, 9)},
        ("both", None): {(3, 9), (3, 8)},
        ("second", None): {(3, 9)},
    }
    times = [
        (call["first_seen_ms"] - START_MS, call["last_seen_ms"] - START_MS) for call in found["both", None]["calls"]
    ]
    assert times == [(0, 1000), (1000, 1000)]


async def test_file_is_in_the_first_data_directory(tmp_path: Path) -> None:
    async with running(tmp_path / "b", tmp_path / "a"):
        pass
    assert (tmp_path / "b" / FILE_NAME).exists() and not (tmp_path / "a" / FILE_NAME).exists()


def damages() -> dict[str, bytes]:
    whole = to_bytes(Seen({}, True, 5))
    client = (
        '{"client_id":"a","listener":"L","software_name":null,"software_version":null,'
        '"asks_versions":%s,"calls":%s,"produced":[]}'
    )

    def having(entry: str) -> bytes:
        return whole.replace(b"[\n\n]", b"[" + entry.encode() + b"]")

    good = having(client % ("true", "[]"))
    assert len(from_bytes(good).clients) == 1
    call = '[{"api_key":%s,"version":1,"first_seen_ms":%s,"last_seen_ms":1,"refused_ms":null,"was_newest":true}]'
    assert from_bytes(having(client % ("true", call % (1, 1)))).clients
    return {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "not UTF-8": b"\xff" + good,
        "a list": b"[]",
        "deep": b"[" * 100_000,
        "a long number": b"9" * 5000,
        "another version": whole.replace(b'"version": 1', b'"version": 2'),
        "no clients": whole.replace(b"clients", b"client5"),
        "a number as client": having("5"),
        "a number as flag": having(client % ("1", "[]")),
        "a text as list": having(client % ("true", '"x"')),
        "a flag as key": having(client % ("true", call % ("true", 1))),
        "a key too large": having(client % ("true", call % (1 << 31, 1))),
        "a time beyond all calendars": having(client % ("true", call % (1, 1 << 60))),
    }


@pytest.mark.parametrize("damage", damages())
async def test_damaged_file_is_renamed_with_a_warning(tmp_path: Path, damage: str) -> None:
    data = damages()[damage]
    (tmp_path / FILE_NAME).write_bytes(data)
    with logged() as events:
        async with running(tmp_path) as broker:
            client = await broker.client()
            await client.call(ping(), 0, "app")
    assert (tmp_path / (FILE_NAME + DAMAGED_SUFFIX)).read_bytes() == data
    assert list(on_disk(tmp_path)["clients"]) == [("app", None)]
    assert [event["log_level"] for event in events if "damaged client ledger renamed" in event["event"]] == ["warning"]


def test_too_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / FILE_NAME).open("wb") as file:
        file.truncate(client_ledger.FILE_BYTES_MAX + 1)
    assert not ledger(tmp_path).seen.clients
    assert (tmp_path / (FILE_NAME + DAMAGED_SUFFIX)).stat().st_size == client_ledger.FILE_BYTES_MAX + 1


class _BrokenFile(DiskFile):
    __slots__ = ()

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        super().write(position, data[: len(data) // 2])
        raise OSError(28, "No space left on device")


class BrokenFiles(DiskFiles):
    """A disk on which one step of each file replacement fails while `step` names it."""

    step = ""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        opened = super().open(path, create=create)
        assert isinstance(opened, DiskFile)
        if self.step == "write":
            opened.__class__ = _BrokenFile
        return opened

    def replace(self, source: str, target: str) -> None:
        if self.step == "replace":
            raise OSError(5, "Input/output error")
        super().replace(source, target)


@pytest.mark.parametrize("step", ["write", "replace"])
def test_crash_during_a_write_leaves_the_file_unchanged(tmp_path: Path, step: str) -> None:
    files, clock = BrokenFiles(), ManualClock()
    kept = ledger(tmp_path, files, clock)
    kept.note(kept.library("L"), "before", 3, 9)
    clock.advance(TICK_MS)
    before = (tmp_path / FILE_NAME).read_bytes()
    files.step = step
    kept.note(kept.library("L"), "after", 3, 9)
    clock.advance(TICK_MS)  # the broker crashes here, after half of the file
    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert list(noted(ledger(tmp_path))) == ["before"]
    files.step = ""
    clock.advance(TICK_MS)  # or it continues, and the disk works again
    assert list(noted(ledger(tmp_path))) == ["before", "after"]


def test_broken_disk_does_not_affect_requests(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"damaged")
    files, clock = BrokenFiles(), ManualClock()
    files.step = "replace"
    with logged() as events:
        kept = ledger(tmp_path, files, clock)
        for number in range(5):
            kept.note(kept.library("L"), f"client {number}", 3, 9)
            clock.advance(TICK_MS)
        kept.close()
    aside, unwritten = events
    assert "renaming failed" in aside["reason"] and unwritten["event"] == "client ledger not written"


def test_close_cancels_the_timer(tmp_path: Path) -> None:
    clock = ManualClock()
    ledger(tmp_path, clock=clock).close()
    (tmp_path / FILE_NAME).unlink()
    clock.advance(LAST_SEEN_WRITE_MS * 2)
    assert not (tmp_path / FILE_NAME).exists()


# --- limits


def test_excess_client_ids_are_recorded_together(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    kept = ledger(tmp_path)
    silent, asking = kept.library("L"), kept.library("L", None, None, True)
    for number in range(max(scaled(3000), 2 * client_ledger.CLIENTS_MAX)):
        kept.note(silent, f"id {number}", 3, 9)
    kept.note(silent, "id 0", 3, 8)  # known clients are still recorded separately
    kept.note(silent, "one more", 0, 2)
    kept.note(asking, "negotiating client", 0, 7)
    clients = kept.seen.clients
    assert len(clients) <= client_ledger.CLIENTS_MAX + 2 and not kept.seen.complete
    assert set(clients["L", None, None, "id 0", False].calls) == {(3, 9), (3, 8)}
    others, others_asking = clients["L", None, None, None, False], clients["L", None, None, None, True]
    assert (set(others.calls), others.negotiates_versions) == ({(3, 9), (0, 2)}, False)
    assert (set(others_asking.calls), others_asking.negotiates_versions) == ({(0, 7)}, True)
    assert len(silent.seen) <= client_ledger.SEEN_MAX
    kept.close()
    again = ledger(tmp_path)
    assert again.seen.clients == clients and not again.seen.complete
    again.note(again.library("L"), "yet another", 1, 4)
    assert (1, 4) in again.seen.clients["L", None, None, None, False].calls


def test_calls_per_client_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ledger(tmp_path)
    library = kept.library("L")
    for key in range(-2000, 2000):
        kept.note_refused(library, "odd", key, key % 7)
    assert len(noted(kept)["odd"].calls) == client_ledger.CLIENT_CALLS_MAX and not kept.seen.complete
    assert not library.seen, "a refused call closes its connection: nothing to remember"
    monkeypatch.setattr(client_ledger, "ENTRIES_MAX", client_ledger.CLIENT_CALLS_MAX + 2)
    for number in range(10):
        kept.note(library, f"id {number}", 3, 9)
    kept.note(library, "id 0", 3, 9)
    kept.note(library, "id 0", 3, 10)
    assert set(noted(kept)) == {"odd", "id 0", "id 1", None}
    assert set(noted(kept)["id 0"].calls) == {(3, 9)} and set(noted(kept)[None].calls) == {(3, 9), (3, 10)}
    for version in range(200):
        kept.note_records(library, "id 0", version, records(b"x"))
    assert len(noted(kept)[None].produced) == client_ledger.CLIENT_FORMATS_MAX


def test_library_names_are_limited_and_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_ledger, "CLIENTS_MAX", 20)
    kept = ledger(tmp_path)
    for number in range(100):
        library = kept.library("L", f"software{number}", "1", True)
    assert library is kept.library("L", None, None, True)
    assert len(kept._libraries) <= 22
    for number in range(1000):
        kept.note(library, "x" * 30_000 + str(number), 3, 9)
    (client,) = kept.seen.clients.values()
    assert client.client_id == "x" * (TEXT_MAX - 1) + "…" and not library.seen
    long = ledger(tmp_path).library("L", "y" * 30_000, "2" * 30_000, True)
    assert len(long.software_name or "") == len(long.software_version or "") == TEXT_MAX


def test_the_largest_file_is_small_and_quick_to_write(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    for number in range(client_ledger.CLIENTS_MAX):
        for call in range(client_ledger.ENTRIES_MAX // client_ledger.CLIENTS_MAX):
            kept.note(kept.library("L"), f"client {number}", call, 3)
    assert len(to_bytes(kept.seen)) < 4 << 20


times = st.integers(0, 1 << 41)
texts = st.text(max_size=20)
uses = st.builds(CallUse, times, times, st.none() | times, st.booleans())
keys = st.integers(-(1 << 15), (1 << 15) - 1)
seen_clients = st.builds(
    SeenClient,
    st.none() | texts,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.booleans(),
    st.dictionaries(st.tuples(keys, keys), uses, max_size=3),
    st.dictionaries(st.tuples(keys, st.integers(0, 2), st.integers(0, 7)), st.builds(Use, times, times), max_size=3),
    st.sets(texts, max_size=3),
)


def test_principals_are_kept_up_to_a_number(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    library = kept.library("L", "java", "4.4.0", True)
    kept.note_principal(library, "app", "User:early")  # nothing of this client was recorded yet
    assert not kept.seen.clients
    kept.note(library, "app", 3, 9)
    for number in range(CLIENT_PRINCIPALS_MAX):
        kept.note_principal(library, "app", f"User:{number}")
        kept.note_principal(library, "app", f"User:{number}")
    assert kept.seen.complete
    with logged() as events:
        kept.note_principal(library, "app", "User:one more")
    assert not kept.seen.complete and len(events) == 1
    kept.close()
    (found,) = ledger(tmp_path).seen.clients.values()
    assert found.principals == {f"User:{number}" for number in range(CLIENT_PRINCIPALS_MAX)}


@pytest.mark.parametrize("principals", ["5", '["User:a", 5]', "null"])
def test_principals_in_a_damaged_file(principals: str) -> None:
    seen = Seen()
    seen.add(SeenClient("app", "L", None, None))
    data = to_bytes(seen)
    assert from_bytes(data.replace(b',"principals":[]', b"")) == seen  # a file of an earlier version
    with pytest.raises(DamagedFile):
        from_bytes(data.replace(b'"principals":[]', b'"principals":' + principals.encode()))


@given(st.lists(seen_clients, max_size=4), st.booleans(), times)
def test_file_round_trip(found: list[SeenClient], complete: bool, written_ms: int) -> None:
    seen = Seen({}, complete, written_ms)
    for client in found:
        seen.add(client)
    assert from_bytes(to_bytes(seen)) == seen


@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.integers() | texts, st.lists).map(lambda v: json.dumps(v).encode())
)
def test_invalid_files_raise_damaged_file(data: bytes) -> None:
    with pytest.raises(DamagedFile):
        from_bytes(data)
