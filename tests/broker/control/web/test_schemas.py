"""Web pages decode keys and values with schemas from files, and show the error of a value that cannot be decoded."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.control.web import values
from ottla.broker.control.web.messages_view import DECODED_IN_LIST
from ottla.broker.errors import ConfigError
from ottla.tools.serve import parse_serve
from ottla_testing.broker.page_streams import Tail, lines_of
from ottla_testing.broker.paged import HURTFUL, Visitor
from ottla_testing.broker.schema_samples import ORDER, descriptor_set, encoded, message_class, order

GOOD, CONFLUENT, BAD = 0, 1, 2
KEY = message_class("shop.Other")(flag=True).SerializeToString()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Embedded]:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "key.desc").write_bytes(descriptor_set())
    given = {"orders": tmp_path / "order.avsc", "orders:key": f"{tmp_path}/key.desc#shop.Other"}
    with Embedded(control="127.0.0.1:0", schemas=given) as started:
        started.create_topic("orders")
        value = encoded(ORDER, order() | {"note": HURTFUL})
        started.send_many("orders", [(KEY, value), (KEY, struct.pack(">bI", 0, 42) + value), (b"\xff", b"no order")])
        started.create_topic("plain")
        started.send("plain", "text")
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def row(visitor: Visitor, path: str, number: int) -> list[str]:
    rows = list(visitor.page(path).one("tbody").all("tr"))
    return [" ".join(cell.text.split()) for cell in rows[number].children]


def test_list_shows_decoded_keys_and_values(visitor: Visitor) -> None:
    path = "/messages/orders?partition=0&offset=0"
    for number in (GOOD, CONFLUENT):
        key, value = row(visitor, path, number)[2:4]
        assert key == '{"flag": true}' and value.startswith('{"id": 1, "price": "-1.05"')
        assert "<script>alert(1)" in value
    key, value = row(visitor, path, BAD)[2:4]
    assert key == "ff ÿ not decoded" or key.endswith("not decoded")
    assert value == "no order not decoded"
    titles = [one.attributes.get("title", "") for one in visitor.page(path).all("span")]
    assert any(title.startswith("not Avro shop.Order: ") for title in titles)
    assert "not decoded" not in row(visitor, f"{path}&view=hex", BAD)[3]
    assert row(visitor, "/messages/plain", 0)[3] == "text"


def test_record_page_shows_decoded_fields_or_the_error_with_the_bytes(visitor: Visitor) -> None:
    page = visitor.page("/messages/orders/0/1")
    key, value = [one.text for one in page.all("pre")][:2]
    assert json.loads(key) == {"flag": True} and json.loads(value)["state"] == "PAID"
    text = page.one("main").text
    assert "Avro shop.Order, by" in text and "order.avsc: schema id 42" in text
    raw = visitor.page("/messages/orders/0/1?view=hex").all("pre")
    assert "00 00 00 00 2a" in list(raw)[1].text
    broken = visitor.page("/messages/orders/0/2")
    assert "Not decoded as Avro shop.Order" in broken.one("main").text
    assert "Not decoded as Protobuf shop.Other" in broken.one("main").text
    assert [one.text for one in broken.all("pre")][1] == "no order"


def test_tail_and_downloads_decode_records(visitor: Visitor) -> None:
    assert '{"flag": true}' in visitor.page("/messages/orders/tail").one("tbody").text
    stream = Tail(visitor, "/messages/orders/tail/events?after=0:0")
    assert "{&#34;flag&#34;: true}" in stream.event()[2]["rows"]
    stream.close()
    good, _, bad = lines_of(visitor.request("GET", "/messages/orders/records?decode=yes"))
    assert good["key_decoded"] == {"flag": True} and good["value_decoded"]["price"] == "-1.05"
    assert set(bad["value_decoded"]) == {"problem"} and bad["value"] == "no order"
    assert "value_decoded" not in lines_of(visitor.request("GET", "/messages/orders/records"))[0]
    text = visitor.request("GET", "/messages/orders/records?decode=yes&format=csv").text
    head, first, *_ = csv.reader(io.StringIO(text, newline=""))
    assert head[-2:] == ["key_decoded", "value_decoded"] and json.loads(first[-2]) == {"flag": True}


def test_list_does_not_decode_long_values_or_beyond_its_budget(
    visitor: Visitor, broker: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = encoded(ORDER, order() | {"note": "x" * DECODED_IN_LIST})
    broker.send("orders", large, key=KEY)
    path = "/messages/orders?partition=0&offset=3"
    assert "not decoded" in row(visitor, path, 0)[3]
    assert "x" * 100 in visitor.page("/messages/orders/0/3").one("main").text
    monkeypatch.setattr(values.Budget.__init__, "__defaults__", (len(KEY),))
    titles = [
        one.attributes.get("title", "") for one in visitor.page("/messages/orders?partition=0&offset=0").all("span")
    ]
    assert "the page has decoded its maximum of bytes" in titles


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--schema", "t=none.avsc"], "--schema needs --control HOST:PORT"),
        (["--control", "127.0.0.1:0", "--schema", "t"], "--schema: 't' is not a valid schema: expected TOPIC"),
        (["--control", "127.0.0.1:0", "--schema", "t=none.avsc"], "--schema: none.avsc: No such file or directory"),
    ],
)
def test_invalid_schema_flag_is_refused_with_one_line(flags: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_serve(["--data-dir", "unused", *flags], {})
    assert str(refused.value).startswith(why)


def test_schema_flag_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text('"string"')
    flags = ["--control", "127.0.0.1:0", "--schema", f"t={tmp_path}/a.avsc", "--schema", f"t:key={tmp_path}/a.avsc"]
    options, *_ = parse_serve(["--data-dir", "unused", *flags], {})
    assert options.control is not None and options.control.schemas is not None
    assert set(options.control.schemas["t"]) == {"key", "value"}
    with pytest.raises(ValueError, match="schemas needs control"):
        Embedded(schemas={"t": tmp_path / "a.avsc"})
