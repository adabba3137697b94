"""The forms of the pages of a broker with `--control-write`: their effects and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla_testing.broker.page_forms import done, refused
from ottla_testing.broker.paged import HURTFUL, Visitor


@pytest.fixture
def broker() -> Iterator[Embedded]:
    with Embedded(control="127.0.0.1:0", control_write=True) as started:
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def test_topics(visitor: Visitor, broker: Embedded) -> None:
    form = {"name": "orders", "partitions": "3", "configs": "cleanup.policy = compact\r\n\r\nretention.ms=1000"}
    assert done(visitor, "/topics", **form) == "Done. Topic orders was created."
    made = broker.topic("orders")
    assert (len(made.partitions), made.configs) == (3, {"cleanup.policy": "compact", "retention.ms": "1000"})
    assert "TOPIC_ALREADY_EXISTS" in refused(visitor, "/topics", 409, **form)
    assert "INVALID_TOPIC_EXCEPTION" in refused(visitor, "/topics", 400, name=f"no {HURTFUL}")
    assert "NAME=VALUE" in refused(visitor, "/topics", 400, name="more", configs="retention.ms")
    assert "INVALID_CONFIG" in refused(visitor, "/topics", 400, name="more", configs="retention.ms=soon")
    assert "partitions is 1001" in refused(visitor, "/topics", 400, name="more", partitions="1001")
    assert [topic.name for topic in broker.topics()] == ["orders"]
    assert "tick the box" in refused(visitor, "/topics/orders/delete", 400)
    assert done(visitor, "/topics/orders/delete", sure="yes") == "Done. Topic orders was deleted."
    assert broker.topics() == []
    refused(visitor, "/topics/orders/delete", 404, sure="yes")


def test_records(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("orders", 2)
    assert done(visitor, "/messages/orders", key="k", value="two\r\nlines é", headers="a: 1\r\nb:", partition="1") == (
        "Done. The record was appended at offset 0."
    )
    done(visitor, "/messages/orders", value="00ff", value_as="hex", partition="0", timestamp="2026-01-31T12:00:00Z")
    done(visitor, "/messages/orders", key="AP8=", key_as="base64", tombstone="yes", value="not this", partition="0")
    first, second, third = broker.records("orders")
    assert (first.value, first.key, first.timestamp_ms) == (b"\x00\xff", None, 1_769_860_800_000)
    assert (second.value, second.key) == (None, b"\x00\xff")
    assert (third.value, third.key, third.headers) == ("two\nlines é".encode(), b"k", (("a", b"1"), ("b", b"")))
    assert "the value is not valid hex" in refused(visitor, "/messages/orders", 400, value="0x", value_as="hex")
    assert "the key is not valid base64" in refused(visitor, "/messages/orders", 400, key="?", key_as="base64")
    assert "NAME: VALUE" in refused(visitor, "/messages/orders", 400, headers="nothing")
    assert "no partition 2" in refused(visitor, "/messages/orders", 404, partition="2")
    assert "is not a time" in refused(visitor, "/messages/orders", 400, timestamp="soon")
    assert "MESSAGE_TOO_LARGE" in refused(visitor, "/messages/orders", 400, value="x" * 1_100_000)
    assert "no topic none" in refused(visitor, "/messages/none", 404, value="x")  # and no topic is created
    assert visitor.request("POST", "/messages/orders", "x" * 2_200_000).status == 413
    assert len(broker.records("orders")) == 3 and len(broker.topics()) == 1


def test_internal_topics_are_not_written_or_deleted(visitor: Visitor, broker: Embedded) -> None:
    async def made(operations: Any) -> None:
        operations.running.state.internal_topic("__consumer_offsets", operations.running.state.clock.now_ms())

    broker._thread.call(made)
    assert "only the broker writes" in refused(visitor, "/messages/__consumer_offsets", 400)
    assert "cannot be deleted here" in refused(visitor, "/topics/__consumer_offsets/delete", 400, sure="yes")
    for path in ("/messages/__consumer_offsets", "/topics/__consumer_offsets"):
        assert all(one.attributes["method"] != "post" for one in visitor.page(path).all("form"))
        assert not any("record" in one.text for one in visitor.page(path).all("summary"))
    assert [topic.name for topic in broker.topics()] == ["__consumer_offsets"]


def test_faults(visitor: Visitor, broker: Embedded) -> None:
    form = {"action": "error", "code": "NOT_LEADER_OR_FOLLOWER", "api": "Produce", "topic": "orders*", "times": "2"}
    assert done(visitor, "/faults", **form) == "Done. Fault 1 was added."
    assert broker.faults.list()[0].rule.to_json() == {**form, "times": 2}
    done(visitor, "/faults", action="delay", ms="50", client_id="x", code="")
    done(visitor, "/faults", action="stall", api="Fetch")
    assert "no error code" in refused(visitor, "/faults", 400, action="error", code="NOPE_NOPE")
    assert "delay needs ms" in refused(visitor, "/faults", 400, action="delay")
    assert "no API" in refused(visitor, "/faults", 400, action="stall", api="Nothing")
    assert "one of error, delay" in refused(visitor, "/faults", 400, action="disk_error")
    assert done(visitor, "/faults/remove", id="2") == "Done. Fault 2 was removed."
    refused(visitor, "/faults/remove", 404, id="2")
    assert done(visitor, "/faults/remove", id="all") == "Done. 2 faults were removed."
    assert broker.faults.list() == []


def test_the_clock(visitor: Visitor, broker: Embedded) -> None:
    assert "frozen" in done(visitor, "/clock", do="freeze")
    before = broker.clock.now_ms
    done(visitor, "/clock", do="advance", by="1h30m")
    done(visitor, "/clock", do="advance", by="500", keep_members="yes")
    assert broker.clock.now_ms == before + 5_400_500
    assert "is not a duration" in refused(visitor, "/clock", 400, do="advance", by="soon enough")
    assert "a hundred years" in refused(visitor, "/clock", 400, do="advance", by="99999d")
    assert "one of freeze, run, advance" in refused(visitor, "/clock", 400, do="stop")
    assert "runs" in done(visitor, "/clock", do="run")
    assert not broker.clock.is_frozen


def test_groups(visitor: Visitor, broker: Embedded) -> None:
    assert "GROUP_ID_NOT_FOUND" in refused(visitor, "/groups/delete", 404, id="none", sure="yes")
    assert "tick the box" in refused(visitor, "/groups/delete", 400, id="none")


def test_forms_need_the_form_content_type_and_a_bounded_body(visitor: Visitor, broker: Embedded) -> None:
    seen = visitor.request("POST", "/topics", '{"name": "x"}', Content_Type="application/json")
    assert seen.status == 400 and "x-www-form-urlencoded" in seen.text
    seen = visitor.request("POST", "/topics", "name=x", Content_Type="multipart/form-data; boundary=a")
    assert seen.status == 400
    assert visitor.request("POST", "/topics", "name=x", Origin="http://evil.example").status == 403
    assert visitor.request("POST", "/topics", "name=x", Origin=None).status == 403
    assert visitor.request("POST", "/requests", "").status == 405
    for charset in ("nope", "ascii", "rot13"):  # is ignored: browsers send UTF-8
        as_given = f"application/x-www-form-urlencoded; charset={charset}"
        assert visitor.request("POST", "/topics", "name=\u00fc", Content_Type=as_given).status == 400
    assert "more than 100 fields" in visitor.request("POST", "/topics", "a&" * 101).text
    large = visitor.request("POST", "/topics", "name=" + "x" * (2 * 1024 * 1024))
    assert large.status == 413 and "larger than 2097152 bytes" in large.text
    assert broker.topics() == []
    # The message comes from the page's URL, only with write access, and is escaped.
    page = visitor.page("/topics?done=%3Cb%3Ehurt")
    assert not page.all("b")
    assert "hurt" in page.one("main").text
    assert (
        "hurt"
        not in visitor.request("GET", "/topics?done=hurt", Sec_Fetch_Site="cross-site").text.partition("<main")[2]
    )


def test_send_to_a_partition_without_a_leader_is_refused(visitor: Visitor, broker: Embedded) -> None:
    broker.create_topic("led", 2)
    broker.topology.take_offline("led", 1)
    assert "LEADER_NOT_AVAILABLE" in refused(visitor, "/messages/led", 409, value="x", partition=1)
    assert "1 offline" in visitor.page("/topics").row("led")[0]
    assert "1 offline" in visitor.page("/topics/led").one("main").text
