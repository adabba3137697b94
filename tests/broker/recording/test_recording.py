"""Recordings from end to end: the file, of either format, has all exchanges, also after failures of the broker or the
disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.config.record_options import LEAST_BYTES, RecordError, RecordOptions
from ottla.broker.config.serve_options import StartupError
from ottla.broker.faults import actions
from ottla.broker.faults.rule_set import Faults
from ottla.broker.faults.rules import Rule
from ottla.broker.recording import recorder as recorder_module
from ottla.broker.recording.exchange import Buffer, Ending, Recording
from ottla.broker.recording.files import NoRecording, read_recording
from ottla.broker.recording.raw import RawFiles
from ottla.broker.recording.ring import Ring
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines, refused
from ottla_testing.broker.harness import Broker, create_topics, fetch, ping, process, produce, records
from ottla_testing.broker.recorders import FORMATS, SECRET, Sink, calls, facts, memory, settled


async def talk(broker: Broker) -> None:
    """Sends one request of each kind: with a client library, with records, without a response, waiting, undecodable,
    with a fault."""
    one, other = await broker.client(), await broker.client()
    named = ApiVersionsRequest(client_software_name="tester", client_software_version="1.0")
    await one.call(named, 3)
    await one.call(create_topics("t"), 5, client_id=None)
    waiting = await other.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
    for codec in range(5):
        await one.call(produce(records(SECRET * 30, SECRET, key=SECRET, codec=codec)), 9)
    await one.send(produce(records(SECRET), acks=0), 9)
    await one.call(MetadataRequest(topics=[]), 9)
    assert (await other.receive())[0] == waiting
    for bytes_sent in (
        struct.pack(">i", 7) + b"abcd" + bytes(3),  # other frames are blanked: they may be a password
        struct.pack(">ihhihI", 14, 3, 12, 1, -1, 7),
        struct.pack(">ihhih", 10, 999, 0, 7, -1),
    ):
        broken = await broker.client()
        await broken.send_bytes(bytes_sent)
        assert await broken.is_closed()
    assert broker.running.faults is not None
    broker.running.faults.add(Rule(action=actions.error("NOT_CONTROLLER"), api="CreateTopics", times=1))
    await one.call(create_topics("u"), 5)
    broker.running.faults.add(Rule(action=actions.truncate(20), api="Metadata", times=1))
    lost = await broker.client()
    await lost.send(MetadataRequest(topics=None), 9)
    assert await lost.is_closed()
    await one.send(produce(records(bytes(200_000))), 9)  # more than a packet
    await one.receive()
    await (await broker.client()).call(ping(), 0)


@pytest.mark.parametrize("kind", FORMATS)
async def test_recording_has_all_exchanges(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"said.{kind}")
    sink = Sink()
    async with memory(faults=Faults()) as broker:
        broker.running.connections.listen(sink)
        broker.running.recorder.start(broker.running, RecordOptions(path))
        await talk(broker)
        cluster_id, port = broker.state.cluster_id, broker.ports[0]
    found = read_recording(path)
    assert not found.damage and not found.dropped
    assert found.meta["cluster_id"] == cluster_id and found.meta["contents"] is True
    assert found.meta["nodes"] == [{"node_id": 1, "listener": "PLAINTEXT", "host": "127.0.0.1", "port": port}]
    assert [facts(one) for one in found.exchanges] == [facts(one) for one in sink.exchanges]
    assert [one.duration_ns for one in found.exchanges] == [one.duration_ns for one in sink.exchanges]
    begun = [one.begun_ns for one in found.exchanges]
    assert begun == sorted(begun) and all(one.begun_ns // 1_000_000 == one.time_ms for one in found.exchanges)
    assert {Ending.RESPONDED, Ending.SILENT, Ending.CLOSED} == {one.ending for one in found.exchanges}
    assert {one.software_name for one in found.exchanges} == {"tester", None}
    assert any(one.fault for one in found.exchanges) and any(one.reason for one in found.exchanges)


@pytest.mark.parametrize("size", [3, 5000])  # in bytes; the larger is written from where it lies
@pytest.mark.parametrize("kind", FORMATS)
async def test_password_without_a_handshake_is_not_recorded(
    kind: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not in events that wait to be written."""
    path = tmp_path / f"sasl.{kind}"
    token = b"\0user\0" + SECRET * size
    waited = spooled(monkeypatch)
    async with memory() as broker:
        broker.running.recorder.start(broker.running, RecordOptions(str(path)))
        client = await broker.client()
        await client.send_bytes(struct.pack(">i", len(token)) + token)
        assert await client.is_closed()
    (one,) = read_recording(str(path)).exchanges
    assert (one.request, one.ending) == (token[:4] + bytes(len(token) - 4), Ending.CLOSED) and not one.client_id
    assert SECRET[2:] not in path.read_bytes()
    assert token[:4] in b"".join(waited) and SECRET[2:] not in b"".join(waited)


def spooled(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collects everything that is written to raw files from now on."""
    found: list[bytes] = []
    write = RawFiles.write

    def noted(self: RawFiles, data: Buffer) -> None:
        found.append(bytes(data))
        write(self, data)

    monkeypatch.setattr(RawFiles, "write", noted)
    return found


async def test_json_lines_have_decoded_requests(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    async with memory(faults=Faults()) as broker:
        broker.running.recorder.start(broker.running, RecordOptions(str(path)))
        await talk(broker)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [lines[0]["type"], lines[-1]["type"], lines[-1]["reason"]] == ["recording", "end", "stopped"]
    kinds = [line["type"] for line in lines]
    assert kinds.count("connection") == kinds.count("closed") == 7
    (first, *_) = [line for line in lines if line.get("api") == "Produce"]
    (batch,) = first["request"]["topic_data"][0]["partition_data"][0]["records"]["batches"]
    assert [record["value"] for record in batch["records"]] == ["geheim" * 30, "geheim"]
    assert first["response"]["responses"][0]["partition_responses"][0]["error_code"] == 0
    assert (first["client_id"], first["ending"], first["software_name"]) == ("test", "responded", "tester")


@pytest.mark.parametrize("kind", FORMATS)
async def test_recording_without_contents_has_no_keys_or_values(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"bare.{kind}"
    async with memory(faults=Faults()) as broker:
        broker.running.recorder.start(broker.running, RecordOptions(str(path), contents=False))
        await talk(broker)
    assert SECRET not in path.read_bytes() and b"Z2VoZWlt" not in path.read_bytes()
    found = read_recording(path)
    produced = [one for one in found.exchanges if one.api_key == 0]
    assert not found.damage and found.meta["contents"] is False and len(produced) == 7
    if kind == "pcapng":
        assert all(bytes(30) in (one.request or b"") for one in produced if one.request_bytes > 200)
    else:
        assert '"value_size":180' in path.read_text()


@pytest.mark.parametrize("kind", FORMATS)
async def test_recording_ends_at_its_size(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"full.{kind}"
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path), LEAST_BYTES))
        await calls(broker, 30, 5000)
        await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "it has reached its size"
        await calls(broker, 3, 10)  # the broker continues
        assert broker.running.connections.tap is None
        recorder.start(broker.running, RecordOptions(str(path)))  # and a new recording can start
        await calls(broker, 1, 10)
    assert path.stat().st_size <= LEAST_BYTES and len(read_recording(path).exchanges) == 1


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_ring_keeps_the_newest(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"ring.{kind}"
    former = tmp_path / f"ring.{kind}.1"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(path), LEAST_BYTES, ring=True))
        await calls(broker, 60, 3000)
        await broker.settle()
    assert path.stat().st_size + former.stat().st_size <= LEAST_BYTES
    found = read_recording(path)
    numbers = [one.number for one in found.exchanges]
    assert numbers == list(range(numbers[0], 64)) and numbers[0] > 1 and not found.damage
    assert len(found.exchanges) > len(read_recording(former).exchanges) > 2
    assert all(one.request is not None and one.response is not None for one in found.exchanges)


@pytest.mark.parametrize("kind", FORMATS)
async def test_exchange_larger_than_a_ring_is_dropped_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"ring.{kind}"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(path), LEAST_BYTES, ring=True))
        await calls(broker, 5, 10)
        await calls(broker, 2, LEAST_BYTES)
        await calls(broker, 1, 10)
        await broker.settle()
    found = read_recording(path)
    assert found.dropped == 2 and not found.damage
    sizes = [one.request_bytes for one in found.exchanges if one.api_key == 0]
    assert len(sizes) == 6 and max(sizes) < 1000


@pytest.mark.process
@pytest.mark.parametrize("kind", FORMATS)
def test_recording_of_a_killed_broker_has_the_earlier_exchanges(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"killed.{kind}"
    with process(tmp_path, "--data-dir", str(tmp_path / "data"), "--record", str(path)) as broker:
        assert read_recording(path).exchanges == []  # it exists when the broker is ready

        async def talk_and_wait() -> None:
            from ottla_testing.broker.harness import Client

            client = await Client.connect(broker.ports[0])
            for _ in range(20):
                await client.call(ping(), 0)
            await client.call(create_topics("t"), 5)
            await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
            await settled(lambda: b"".join(one.request or b"" for one in read_recording(path).exchanges) != b"")
            await asyncio.sleep(0.2)  # events are written every 20 ms
            client.close()

        asyncio.run(talk_and_wait())
        assert broker.end(signal.SIGKILL) == -signal.SIGKILL
    found = read_recording(path)
    assert not found.damage and len(found.exchanges) == 22


@contextlib.contextmanager
def files_of(size: int) -> Iterator[None]:
    """Limits the size of files that this process writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("kind", FORMATS)
async def test_full_disk_ends_only_the_recording(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"disk.{kind}"
    async with memory() as broker:
        await broker.topic("t")
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 3, 1000)
        await settled(lambda: len(read_recording(path).exchanges) == 3)
        with files_of(path.stat().st_size + 3000):
            await calls(broker, 20, 1000)
            await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "File too large"
        await calls(broker, 3, 10)
    found = read_recording(path)
    assert not found.damage and 3 <= len(found.exchanges) < 23


async def test_a_recorder_that_fails_ends_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "failed.jsonl"
    async with memory() as broker:
        recorder = broker.running.recorder
        recorder.start(broker.running, RecordOptions(str(path)))
        client = await broker.client()
        await client.call(ping(), 0)
        with monkeypatch.context() as patched:
            patched.setattr(recorder_module, "may_carry", None)
            await client.call(ping(), 0)
        await settled(lambda: not recorder.is_running)
        assert recorder.state is not None and recorder.state.ended == "it failed; the broker's log has the error"
        await client.call(ping(), 0)
        await recorder.stop()
        again = tmp_path / "again.jsonl"
        recorder.start(broker.running, RecordOptions(str(again)))
        await client.call(ping(), 0)
    assert [len(read_recording(one).exchanges) for one in (path, again)] == [1, 1]


def test_no_other_file_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"mine": 1}\n')
    with pytest.raises(
        StartupError, match=r"notes\.json exists and is not a recording: it is not overwritten; choose another name"
    ):
        Embedded(record=path).start()
    assert path.read_text() == '{"mine": 1}\n'
    for made in (tmp_path / "folder.jsonl", tmp_path / "pipe.jsonl"):
        (os.mkfifo if "pipe" in made.name else os.mkdir)(made)
        with pytest.raises(StartupError, match="is not a regular file: it cannot be recorded to"):
            Embedded(record=made).start()
    with pytest.raises(StartupError, match="cannot be recorded to: No such file or directory"):
        Embedded(record=tmp_path / "none" / "x.jsonl").start()
    with pytest.raises(RecordError, match="ends with"):
        Embedded(record=tmp_path / "x.txt")
    path = tmp_path / "x.pcapng"
    for _ in range(2):  # an earlier recording may be overwritten
        with Embedded(record=path) as broker:
            with pytest.raises(StartupError, match="is being recorded to already"):
                Embedded(record=path).start()
            assert broker.options.record is not None
    assert read_recording(path).exchanges == []
    taken = tmp_path / "new.jsonl"
    with Embedded(record=taken) as broker, pytest.raises(StartupError):
        Embedded(record=tmp_path / "never.jsonl", listeners=broker.bootstrap).start()
    assert not (tmp_path / "never.jsonl").exists()


@pytest.mark.parametrize("kind", FORMATS)
async def test_damage_is_reported_and_the_rest_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"damaged.{kind}"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 5, 100)
    data = path.read_bytes()
    whole = read_recording(path)
    for cut in range(0, len(data), 97):
        path.write_bytes(data[:cut])
        try:
            found = read_recording(path)
        except NoRecording:
            assert cut < 600
            continue
        expected = [facts(one) for one in whole.exchanges]
        assert [facts(one) for one in found.exchanges if one.ending is Ending.RESPONDED] == expected[: responded(found)]
    if kind == "jsonl":
        lines = data.splitlines(keepends=True)
        lines[3] = b'{"type": "exchange", "number": "x"}\n'
        path.write_bytes(b"".join(lines))
        assert read_recording(path).damage == [f"{path}: line 4: Expected `int`, got `str` - at `$.number`"]
    with pytest.raises(NoRecording, match="is not a recording"):
        (tmp_path / f"other.{kind}").write_bytes(b"{}\n")
        read_recording(tmp_path / f"other.{kind}")


async def test_comment_of_a_wrong_type_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "comment.pcapng"
    async with memory() as broker:
        await broker.topic("t")
        broker.running.recorder.start(broker.running, RecordOptions(str(path)))
        await calls(broker, 12, 100)
    data = path.read_bytes()
    for wrong in (b"[]", b'""', b"{}"):
        path.write_bytes(data.replace(b'{"exchange":10}', b'{"exchange":%b}' % wrong))
        found = read_recording(path)
        assert len(found.damage) == 1 and len(found.exchanges) == 9


def responded(found: Recording) -> int:
    return sum(one.ending is Ending.RESPONDED for one in found.exchanges)


async def test_recording_is_started_and_stopped_over_http(tmp_path: Path) -> None:
    path = str(tmp_path / "x.jsonl")
    async with controlled(tmp_path, files=MemoryFiles(lambda: 0)) as (broker, api):
        assert (await api.call("GET", "/recording"))["file"] is None
        assert await ctl_lines(api, "recording") == ["no recording"]
        await api.call("DELETE", "/recording", status=404)
        assert "ends with" in await api.call("POST", "/recording", {"file": "x.txt"}, 400)
        begun = await api.call("POST", "/recording", {"file": path, "max_bytes": 70_000, "contents": False})
        assert begun["running"] and begun["max_bytes"] == 70_000 and not begun["contents"]
        assert "already" in await api.call("POST", "/recording", {"file": path}, 409)
        await (await broker.client()).call(ping(), 0)
        assert f"file {path}" in await ctl_lines(api, "recording")
        ended = await api.call("DELETE", "/recording")
        assert (ended["running"], ended["ended"], ended["exchanges"]) == (False, "stopped", 1)
        assert len(read_recording(path).exchanges) == 1
        lines = await ctl_lines(api, "recording", "start", path, "--ring", "--max-bytes", "100000")
        assert "recording running" in lines
        assert "ended: stopped" in " ".join(await ctl_lines(api, "recording", "stop"))
        assert "no recording is running" in await refused(api, "recording", "stop")


async def test_recording_includes_connections_opened_before(tmp_path: Path) -> None:
    for kind in FORMATS:
        path = str(tmp_path / f"x.{kind}")
        async with memory() as broker:
            client = await broker.client()
            await client.call(ApiVersionsRequest(client_software_name="me", client_software_version="2"), 3)
            await broker.topic("t")
            broker.running.connections.listen(Ring())  # so that the fetch is reported
            await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
            await broker.settle()
            broker.running.recorder.start(broker.running, RecordOptions(path))
            await (await broker.client()).call(produce(records(b"x")), 9)
            await client.receive()
            await client.call(MetadataRequest(topics=[]), 9)
            await broker.running.recorder.stop()
            assert not broker.running.recorder.is_running
            assert broker.running.recorder.state.exchanges == 2  # type: ignore[union-attr]
        found = read_recording(path)
        assert [one.api_key for one in found.exchanges] == [0, 3] and not found.damage
        assert found.exchanges[1].software_name == "me"
