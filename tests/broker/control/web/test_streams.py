"""The live tail and downloads of messages: their contents, their bounds, and the end of their streams."""

from __future__ import annotations

import asyncio
import base64
import csv
import http.client
import io
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.control.web import downloads, site, tail
from ottla.broker.testing.embedded import OperationError
from ottla_testing.broker.harness import Client, produce
from ottla_testing.broker.page_streams import Tail, lines_of
from ottla_testing.broker.paged import HURTFUL, Visitor, sent
from ottla_testing.broker.transacting import Owner
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
def broker() -> Iterator[Embedded]:
    with Embedded(control="127.0.0.1:0", control_write=True) as started:
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def test_tail_sends_new_records(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("orders", 2)
    broker.send("orders", "before", partition=0)
    page = visitor.page("/messages/orders/tail")
    assert "before" in page.one("tbody").text
    (table,) = [one for one in page.all("table") if "data-tail" in one.attributes]
    assert table.attributes["data-tail"] == "/messages/orders/tail/events?after=0%3A1%2C1%3A0"
    broker.send("orders", "between", partition=1)
    with closing(Tail(visitor, table.attributes["data-tail"])) as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        name, id, result = stream.event()
        assert (name, id, result["count"], result["skipped"]) == ("rows", "0:1,1:1", 1, 0)
        assert "between" in result["rows"] and result["rows"].count("<tr") == 1
        broker.send("orders", HURTFUL, key=HURTFUL, partition=0)
        _, id, result = stream.event()
        assert id == "0:2,1:1"
        assert "<script" not in result["rows"] and "&lt;script&gt;" in result["rows"]
        assert not set("\x00\x1b\u202e\u2066") & set(result["rows"])
    with closing(Tail(visitor, "/messages/orders/tail/events", Last_Event_ID="0:1,1:0")) as stream:
        assert stream.event()[2]["count"] == 2


def test_tail_of_a_fast_topic_sends_the_newest_and_counts_skipped_records(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("fast")
    broker.send_many("fast", [str(number) for number in range(1000)])
    with closing(Tail(visitor, "/messages/fast/tail/events?after=0:0")) as stream:
        _, id, result = stream.event()
        assert (id, result["count"], result["skipped"]) == ("0:1000", tail.ROWS_MAX, 1000 - tail.ROWS_MAX)
        assert result["rows"].index(">999<") < result["rows"].index(">998<")


def test_tail_with_a_text_sends_matching_records(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("t")
    broker.send_many("t", ["even" if number % 2 else "odd" for number in range(10)])
    with closing(Tail(visitor, "/messages/t/tail/events?after=0:0&contains=even")) as stream:
        assert stream.event()[2]["count"] == 5
    assert visitor.page("/messages/t/tail?contains=odd").one("tbody").text.count("odd") == 5


def test_tail_ends_when_its_topic_is_deleted(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("t")
    with closing(Tail(visitor, "/messages/t/tail/events")) as stream:
        broker.delete_topic("t")
        assert stream.event() == ("end", "", {"why": "The tail has ended: there is no topic t."})
        assert stream.response.read() == b""


def test_tail_continues_after_a_reset(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("t")
    kept = broker.snapshot()
    broker.send_many("t", ["a", "b"])
    with closing(Tail(visitor, "/messages/t/tail/events?after=0:0")) as stream:
        assert stream.event()[2]["count"] == 2
        broker.restore(kept)
        broker.send_many("t", ["c", "d", "e"])
        assert stream.event()[1] == "0:3"


def test_tail_ends_with_its_client_and_with_the_broker(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("t")
    stream = Tail(visitor, "/messages/t/tail/events")
    stream.response.readline()
    plane = broker._thread.call(_plane_of(broker))
    assert plane.streams == 1
    stream.close()
    for _ in range(PATIENCE_S * 20):
        if plane.streams == 0:
            break
        threading.Event().wait(0.05)
    assert plane.streams == 0
    last = Tail(visitor, "/messages/t/tail/events")
    last.response.readline()
    broker.stop()
    last.response.read()
    last.close()


def _plane_of(broker: Embedded) -> Any:
    """Returns work that finds the `Plane` of a broker's control plane."""
    import gc

    from ottla.broker.control.plane import Plane

    async def found(operations: Any) -> Plane:
        # `isinstance` raises ReferenceError for a weak proxy whose object no longer exists.
        (plane,) = [
            one for one in gc.get_objects() if type(one) is Plane and one.__dict__.get("operations") is operations
        ]
        return plane

    return found


def test_number_of_streams_is_bounded(visitor: Visitor, broker: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "MAX_STREAMS", 1)
    broker.create_topic("t")
    with closing(Tail(visitor, "/messages/t/tail/events")) as stream:
        stream.response.readline()
        seen = visitor.request("GET", "/messages/t/records")
        assert seen.status == 429 and "1 live tails and downloads are open already" in seen.text
    assert visitor.request("HEAD", "/messages/none/tail/events").status == 404


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/messages/none/tail", 404),
        ("/messages/none/tail/events", 404),
        ("/messages/none/records", 404),
        ("/messages/t/tail/events?after=x", 400),
        ("/messages/t/tail/events?after=" + "0:1," * 200 + "0:1", 400),
        ("/messages/t/tail?partition=2", 404),
        ("/messages/t/tail?view=upside", 400),
        ("/messages/t/records?partition=2", 404),
        ("/messages/t/records?offset=1", 400),
        ("/messages/t/records?limit=100001", 400),
        ("/messages/t/records?format=xml", 400),
        ("/messages/t/records?time=soon", 400),
    ],
)
def test_invalid_streams_are_refused(visitor: Visitor, broker: Embedded, path: str, status: int) -> None:
    broker.create_topic("t", 2)
    assert visitor.request("GET", path).status == status


async def _transactions(broker: Embedded) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    client = await Client.connect(int(port), host)
    owner = Owner(client, "owner")
    assert await owner.init() == 0
    for committed in (True, False):
        await owner.add(("paid", 0))
        assert await owner.send(b"committed" if committed else b"aborted", topic="paid") == 0
        assert await owner.end(committed, 3) == 0
    headers = [("h", b"1"), ("raw", b"\xff"), ("none", None)]
    reply = await client.call(produce(sent(b"\xff\0", b"=1+1", None, key=b"-k", headers=headers), "paid"), 9)
    assert reply.responses[0].partition_responses[0].error_code == 0
    client.close()


def test_messages_are_downloaded_as_json_lines(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("paid")
    asyncio.run(_transactions(broker))
    seen = visitor.request("GET", "/messages/paid/records")
    assert seen.headers["Content-Disposition"] == 'attachment; filename="paid.jsonl"'
    assert seen.headers["Content-Type"].startswith("application/x-ndjson")
    assert seen.headers["X-Content-Type-Options"] == "nosniff" and seen.headers["Content-Security-Policy"] == "sandbox"
    first, aborted, raw, formula, tombstone = lines_of(seen)
    assert (first["topic"], first["partition"], first["offset"], first["value"]) == ("paid", 0, 0, "committed")
    assert "transaction" not in first and aborted["transaction"] == "aborted"
    assert (raw["key"], raw["value"]) == ("-k", {"base64": "/wA="})
    assert raw["headers"] == [
        {"name": "h", "value": "1"}, {"name": "raw", "value": {"base64": "/w=="}}, {"name": "none", "value": None},
    ]  # fmt: skip
    assert formula["value"] == "=1+1" and tombstone["value"] is None
    (one,) = lines_of(visitor.request("GET", "/messages/paid/records?partition=0&offset=5&until=6"))
    assert one["value"] == "=1+1"
    assert len(lines_of(visitor.request("GET", "/messages/paid/records?limit=2"))) == 2
    assert [one["value"] for one in lines_of(visitor.request("GET", "/messages/paid/records?contains=abort"))] == [
        "aborted"
    ]
    assert lines_of(visitor.request("GET", "/messages/paid/records?time=2200-01-01")) == []


def test_csv_download_escapes_formulas(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("paid")
    asyncio.run(_transactions(broker))
    broker.send("paid", 'two\r\nlines, "quoted"', key="\t=1")
    seen = visitor.request("GET", "/messages/paid/records?format=csv&partition=0")
    assert seen.headers["Content-Disposition"] == 'attachment; filename="paid-0.csv"'
    head, *rows = csv.reader(io.StringIO(seen.text, newline=""))
    assert tuple(head) == downloads.COLUMNS
    found = [dict(zip(head, row, strict=True)) for row in rows]
    assert [(one["value"], one["value_is"]) for one in found[2:5]] == [
        (base64.b64encode(b"\xff\0").decode(), "base64"), ("'=1+1", "text"), ("", "null"),
    ]  # fmt: skip
    assert {one["key"] for one in found[2:5]} == {"'-k"} and found[5]["key"] == "'\t=1"
    assert found[5]["value"] == 'two\r\nlines, "quoted"' and json.loads(found[2]["headers"])[0]["name"] == "h"
    assert [one["transaction"] for one in found[:3]] == ["", "aborted", ""]
    assert found[2]["time"] == "2023-11-14T22:13:20.000Z"


def test_download_is_sent_in_steps_and_ends_at_its_bound(
    visitor: Visitor, broker: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "STEP_BYTES", 10_000)
    broker.create_topic("large", 2)
    values = [f"{number:04}" * 250 for number in range(100)]
    broker.send_many("large", [(None, value) for value in values])
    found = lines_of(visitor.request("GET", "/messages/large/records"))
    assert sorted(one["value"] for one in found) == values
    places = [(one["partition"], one["offset"]) for one in found]
    assert places == [(index, offset) for index in range(2) for offset in range(50)]
    monkeypatch.setattr(downloads, "BYTES_MAX", 30_000)
    cut = lines_of(visitor.request("GET", "/messages/large/records"))
    assert len(cut) < 40 and cut[-1]["problem"].startswith("the file ends here, at 30000 bytes")
    assert cut[-1]["offset"] == cut[-2]["offset"] + 1
    rows = list(csv.reader(io.StringIO(visitor.request("GET", "/messages/large/records?format=csv").text, newline="")))
    assert {len(row) for row in rows} == {len(downloads.COLUMNS)} and rows[-1][-1].startswith("the file ends here")


def test_failed_download_is_aborted(visitor: Visitor, broker: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*given: Any) -> Any:
        raise OperationError("KAFKA_STORAGE_ERROR: the disk is gone")

    broker.create_topic("t")
    broker.send("t", "x")
    monkeypatch.setattr(downloads, "look", failing)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        visitor.request("GET", "/messages/t/records")
    monkeypatch.undo()
    assert len(lines_of(visitor.request("GET", "/messages/t/records"))) == 1


def test_tail_of_many_partitions_names_those_shown(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("wide", tail.PARTITIONS_MAX + 1)
    assert "first 50 of 51 partitions" in visitor.page("/messages/wide/tail").one("main").text
    broker.send("wide", "last", partition=tail.PARTITIONS_MAX)
    page = visitor.page(f"/messages/wide/tail?partition={tail.PARTITIONS_MAX}")
    assert "last" in page.one("tbody").text and "partitions;" not in page.one("main").text


def test_download_yields_to_other_requests(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("large")
    broker.send_many("large", ["x" * 1000] * 5000)
    stream = Tail(visitor, "/messages/large/records")  # whose client reads nothing for now
    for number in range(5):
        assert broker.send("large", f"more {number}") == 5000 + number
    assert (
        len(stream.response.read().split(b"\n")) == 5001
    )  # the end at the beginning of the download, and the line break of the last line
    stream.close()
