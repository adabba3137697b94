"""The web pages: every view of an empty and of a full broker, with filters and links."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from ottla.broker import Embedded
from ottla.broker.control.web import site
from ottla.broker.control.web.render import Renderer
from ottla.client import Admin
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.beating import QUICK, altering_share_offset, consumer_beat, share_beat, share_joined
from ottla_testing.broker.harness import Client, produce, records
from ottla_testing.broker.paged import HURTFUL, NAMED, SECURE, START_MS, Visitor, full
from ottla_testing.broker.sharing import Member

PARTS = "/ /topics /messages /groups /producers /transactions /requests /broker /acls /faults /clock".split()


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    started = full()
    yield started
    started.stop()


@pytest.fixture(scope="module")
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def normalized(text: str) -> str:
    """Returns a text with single blanks, and plain ones for narrow ones."""
    return " ".join(text.replace("\u202f", " ").split())


def test_pages_of_an_empty_broker_explain_what_to_do() -> None:
    with Embedded(control="127.0.0.1:0") as empty:
        assert empty.control_url
        visitor = Visitor(empty.control_url)
        for path in PARTS:
            page = visitor.page(path)
            assert all(one.attributes["method"] in ("get", "dialog") for one in page.all("form")), path
            assert page.all("nav")[0].text.split() == [
                "Overview", "Topics", "Messages", "Groups", "Producers", "Transactions", "Requests", "Broker", "ACLs",
                "Faults", "Clock",
            ]  # fmt: skip
            (here,) = [one for one in page.all("a") if one.attributes.get("aria-current") == "page"]
            assert here.attributes["href"] == path
        for path, expected_text in {
            "/topics": "No topics yet",
            "/messages": "Choose a topic",
            "/groups": "No groups",
            "/producers": "No producers",
            "/transactions": "No transactional ids",
            "/requests": "No requests yet",
            "/acls": "This broker has no authorizer",
            "/faults": "No faults",
        }.items():
            (text,) = [one for one in visitor.page(path).all("p") if one.attributes.get("class") == "empty"][:1]
            assert expected_text in text.text
        assert "runs" in visitor.page("/clock").one("main").text


def test_every_page_of_a_full_broker_is_valid(visitor: Visitor) -> None:
    found = visitor.crawl()
    kinds = {re.sub(r"[0-9]+", "N", path.partition("?")[0]) for path in found}
    assert {"/topics/orders/N", "/messages/orders/N/N", "/producers/paid/N/N", "/requests/N", "/groups/a%NFb"} <= kinds
    assert len(found) > 60
    # No hostile content is unescaped.
    for path, page in found.items():
        assert not re.search("[\x00\x1b\u202e\u2066]", "".join(one.text for one in page.all("html"))), path
        assert not page.all("b"), path
        assert [one.attributes["src"] for one in page.all("script")] == ["/static/page.js"], path
    assert any("{{7*7}}" in page.one("main").text for page in found.values())


def test_topics(visitor: Visitor) -> None:
    page = visitor.page("/topics")
    assert page.row("orders")[1:6] == ["3", "16", page.row("orders")[3], "v2 zstd v2", "delete"]
    assert [row for row in ("old", "older") if page.row(row)[4].startswith(("v1", "v0"))] == ["old", "older"]
    assert page.row("older")[4] == "v0 gzip" and page.row("empty")[4] == "–"
    assert "__consumer_offsets" not in page.one("main").text
    assert "internal" in visitor.page("/topics?kind=internal").row("__consumer_offsets")[0]
    found = visitor.page("/topics?q=OLD&sort=-records")
    names = [row.children[0].text.strip() for row in found.one("tbody").all("tr")]
    assert sorted(names) == ["old", "older"] and normalized(found.one("caption").text) == "2 of 9 topics"
    (column,) = [one for one in found.all("th") if one.attributes.get("aria-sort") == "descending"]
    assert column.text.startswith("Records")
    assert "matches" in visitor.page("/topics?q=nothing").one("main").text
    by_records = visitor.page("/topics?sort=-records").one("tbody")
    assert next(by_records.all("a")).text == "segments"
    assert "sort is &#39;color&#39;, not one of" in visitor.request("GET", "/topics?sort=color").text


def test_a_topic_and_a_partition_with_its_segments(visitor: Visitor, broker: Embedded) -> None:
    page = visitor.page("/topics/orders")
    assert page.one("h1").text == "orders"
    assert page.row("retention.ms") == ["retention.ms", "-1"]
    assert page.row("0")[3:6] == ["0", "14", "14"]
    page = visitor.page("/topics/segments/0")
    rows = [[normalized(cell.text) for cell in row.children] for row in page.all("tbody")[0].all("tr")]
    assert [row[0] for row in rows] == ["0", "active 100"]
    assert rows[0][5] == "v2 gzip" and rows[-1][6] == "v2"
    assert rows[0][3:5] == ["2023-11-14 22:13:59.000", "2023-11-14 22:14:39.000"]  # the largest of the first batch
    assert [row[1] for row in rows] == ["100", "60"]
    known = visitor.page("/topics/paid/0")
    assert "1 not stable" in normalized(known.one("main").text)
    assert "open since offset" in known.one("main").text
    assert visitor.page("/topics/empty/1").row("active")[1:3] == ["0", "0 B"]
    for path in ("/topics/none", "/topics/orders/3", "/topics/orders/99999999999999", "/nowhere"):
        assert visitor.page(path, 404).one("h1").text == "Not done"


def shown_offsets(visitor: Visitor, query: str) -> list[int]:
    page = visitor.page(f"/messages/orders?{query}")
    return [int(one.text) for one in page.all("a") if "data-row" in one.attributes]


def test_messages_by_offset(visitor: Visitor) -> None:
    assert shown_offsets(visitor, "partition=0&offset=3&limit=10") == list(range(3, 13))
    assert shown_offsets(visitor, "partition=0&limit=10") == list(range(4, 14))
    assert shown_offsets(visitor, "partition=0&before=5&limit=10") == list(range(5))
    assert shown_offsets(visitor, "partition=0&offset=99") == []
    page = visitor.page("/messages/orders?partition=0&offset=2&limit=10")
    nexts = [one.attributes["href"] for one in page.all("a") if one.attributes.get("rel") == "next"]
    assert shown_offsets(visitor, nexts[0].removeprefix("?")) == [12, 13]
    previous = [one.attributes["href"] for one in page.all("a") if one.attributes.get("rel") == "prev"]
    assert shown_offsets(visitor, previous[0].removeprefix("?")) == [0, 1]
    assert page.row("3")[1:] == [
        "2023-11-14 22:13:23.000", "null", '{"order": 3, "total": 1.10, "x": [1, {}]}', "–", "41 B", "v2 zstd",
    ]  # fmt: skip
    every = shown_offsets(visitor, "")
    assert len(every) == 16
    assert "choose one" in visitor.page("/messages/orders?offset=3").one("main").text
    for wrong in ("offset=x", "offset=-1", "limit=11", "view=xml", "time=soon", "partition=9999999999"):
        notice = [
            one
            for one in visitor.page(f"/messages/orders?partition=0&{wrong}").all("p")
            if one.attributes.get("role") == "alert"
        ]
        assert notice, wrong
    visitor.page("/messages/orders?partition=3", 404)


@pytest.mark.parametrize("moment", ["2023-11-14T22:13:27Z", "2023-11-14T23:13:27+01:00", str(START_MS + 6001)])
def test_messages_by_time(visitor: Visitor, moment: str) -> None:
    assert shown_offsets(visitor, f"partition=0&time={quote(moment)}")[0] == 7
    page = visitor.page(f"/messages/orders?time={quote(moment)}")  # of all partitions, by time
    assert page.one("main").all("tbody") is not None and normalized(page.one("main").text).count("2023-11-14 22:1") >= 8
    later = visitor.page("/messages/orders?partition=0&time=2100-01-01")
    assert "No record has this time or a later one" in later.one("main").text
    assert "The newest timestamp is 2023-11-14 22:15:03.000, at offset 13" in normalized(later.one("main").text)


def test_messages_are_searched_for_a_text(visitor: Visitor) -> None:
    assert shown_offsets(visitor, f"partition=0&offset=0&contains={quote(chr(34) + 'order' + chr(34) + ': 7')}") == [7]
    assert shown_offsets(visitor, "partition=1&offset=0&contains=onmouseover") == [0]  # in the name of a header
    assert shown_offsets(visitor, "partition=0&contains=plain") == [10]
    page = visitor.page("/messages/orders?partition=0&offset=0&contains=nothing+of+this")
    assert "0 records of 14 that were searched, up to the end." in normalized(page.one("main").text)


def test_search_in_all_partitions_has_the_bound_of_one_partition(
    visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.control.web.messages_view.LOOK_RECORDS", 5)
    page = visitor.page("/messages/orders?contains=nowhere")
    assert "The 0 newest records of the first 1 partitions" in normalized(page.one("main").text)
    monkeypatch.undo()
    assert "The 0 newest records of all partitions" in normalized(
        visitor.page("/messages/orders?contains=nowhere").one("main").text
    )


def test_value_is_shown_as_text_json_or_hex(visitor: Visitor) -> None:
    def shown(offset: int, way: str, number: int = 1) -> str:
        page = visitor.page(f"/messages/orders/0/{offset}?view={way}")
        return page.all("pre")[number].text if len(page.all("pre")) > number else page.all("pre")[-1].text

    assert shown(3, "auto") == '{\n  "order": 3,\n  "total": 1.10,\n  "x": [\n    1,\n    {}\n  ]\n}'
    assert shown(3, "text") == '{"order": 3, "total": 1.10, "x": [1, {}]}'
    assert shown(3, "hex").startswith(
        '00000000  7b 22 6f 72 64 65 72 22  3a 20 33 2c 20 22 74 6f  {"order": 3, "to\n00000010'
    )
    assert shown(13, "auto").startswith("00000000  00 01 02")
    page = visitor.page("/messages/orders/0/13?view=text")
    assert "not UTF-8: shown in hex" in normalized(page.one("main").text)
    assert "not JSON" in normalized(visitor.page("/messages/orders/0/10?view=json").one("main").text)
    assert [
        one.text for one in visitor.page("/messages/orders/0/11").all("p") if one.attributes.get("class") == "null"
    ] == ["null"]
    assert [
        one.text for one in visitor.page("/messages/orders/0/12").all("p") if one.attributes.get("class") == "null"
    ] == ["empty"]
    for way in ("json", "hex"):
        assert visitor.page(f"/messages/orders?partition=0&view={way}").all("pre")


def test_a_message_with_its_batch_and_its_bytes(visitor: Visitor) -> None:
    page = visitor.page("/messages/orders/1/0")
    text = page.one("main").text
    assert "\\x00\\x1b[31m\\u202etxt.exe\\u2066" in text and "<script>alert(1)</script>" in text
    assert [row.children[0].text for row in page.one("tbody").all("tr")] == [
        NAMED.replace("\u202e", "\\u202e"),
        "none",
        "raw",
    ]
    for what in ("key", "value", "header-0"):
        seen = visitor.request("GET", f"/messages/orders/1/0/{what}")
        assert (seen.status, seen.body) == (200, HURTFUL.encode())
        assert seen.headers["Content-Type"] == "application/octet-stream"
        assert seen.headers["Content-Disposition"] == f'attachment; filename="orders-1-0.{what}"'
        assert {name: seen.headers[name] for name in SECURE} == SECURE
        assert seen.headers["Content-Security-Policy"] == "sandbox"
    for what in ("header-1", "header-3", "header-", "header-99999999", "nothing", "header-²"):
        assert visitor.request("GET", f"/messages/orders/1/0/{quote(what)}").status == 404
    assert visitor.request("GET", "/messages/orders/1/1/value").status == 404
    pairs = {
        one.children[0].text: normalized(one.children[1].text)
        for one in visitor.page("/messages/orders/2/0").all("dl")[1].children
    }
    assert (pairs["Producer"], pairs["Sequences"], pairs["CRC"], pairs["Format"]) == (
        "77 epoch 2",
        "0 to 0",
        "valid",
        "v2",
    )
    old = visitor.page("/messages/older/0/1")
    assert "v0 gzip" in old.one("main").text and "none" in normalized(old.all("dl")[0].text)
    links = {one.text: one.attributes["href"] for one in visitor.page("/messages/orders/0/5").all("a")}
    assert visitor.page(links["← Previous"]).one("h1").text == "Offset 4"
    assert visitor.page(links["Next →"]).one("h1").text == "Offset 6"
    visitor.page("/messages/orders/0/14", 404)


def test_outcome_of_transactions_is_shown(visitor: Visitor) -> None:
    page = visitor.page("/messages/paid?partition=0&offset=0")
    fates = [normalized(row.children[-1].text) for row in page.one("tbody").all("tr")]
    assert fates == ["v2 committed"] * 2 + ["v2"] + ["v2 aborted"] * 2 + ["v2", "v2 not stable"]
    assert "commit, coordinator epoch 0" in page.row("2")[2] and "abort, coordinator epoch 0" in page.row("5")[2]
    assert "read_committed" in visitor.page("/messages/paid/0/3").one("main").text
    assert "after the last stable offset, 6" in normalized(visitor.page("/messages/paid/0/6").one("main").text)
    assert "Consumers skip it" in visitor.page("/messages/paid/0/2").one("main").text


def test_records_of_internal_topics_are_decoded(visitor: Visitor) -> None:
    page = visitor.page("/messages/__consumer_offsets?limit=250")
    assert "OffsetCommitKey: " in page.one("main").text and 'group: "readers"' in page.one("main").text
    (link,) = [one for one in page.links if re.match("/messages/__consumer_offsets/[0-9]", one)][:1]
    opened = visitor.page(link).all("pre")
    assert opened[0].text.startswith(("OffsetCommitKey", "GroupMetadataKey")) and "group" in opened[0].text


def test_groups(visitor: Visitor) -> None:
    page = visitor.page("/groups")
    assert page.row("readers")[1:] == ["Stable", "classic", "consumer range", "1", "1", "1", "11"]
    assert len(list(page.one("tbody").all("tr"))) == 4
    assert len(list(visitor.page("/groups?state=Stable").one("tbody").all("tr"))) == 1
    assert "matches" in visitor.page("/groups?q=zzz").one("main").text
    for link in page.links:
        if link.startswith("/groups") and "sort" not in link and link != "/groups":
            assert "Committed offsets" in visitor.page(link).one("main").text
    readers = visitor.page("/groups/readers")
    assert readers.row("orders-0")[1:5] == ["3", "0", "14", "11"] and "orders-1" in readers.one("main").text
    assert "partition=0&offset=3" in " ".join(readers.links)
    visitor.page("/groups/none", 404)


async def test_consumer_and_share_groups_have_epochs_targets_and_records_in_flight() -> None:
    with Embedded(release="4.3", control="127.0.0.1:0", configs=QUICK) as broker:
        assert broker.control_url
        visitor = Visitor(broker.control_url)
        broker.create_topic("t", 2)
        client = await Client.connect(int(broker.bootstrap.rpartition(":")[2]))
        await consumer_beat(client, "first", ["t"])
        await consumer_beat(client, "second", ["t"])
        await share_joined(client, "sharer", "t")
        await share_beat(client, "sharer", epoch=-1)
        assert (await client.call(altering_share_offset("s", "t", 0, 0), 0)).error_code == 0
        await client.call(produce(records(b"a", b"b")), 9)
        topic = (await client.call(MetadataRequest(topics=None), 12)).topics[0]
        await Member(client, "sharer", "s").fetch((topic.topic_id, 0))
        page = await asyncio.to_thread(visitor.page, "/groups?sort=type")
        assert page.row("g")[1:4] == ["Reconciling", "consumer", "consumer uniform"]
        assert page.row("s")[1:4] == ["Empty", "share", "share simple"]
        consumers = await asyncio.to_thread(visitor.page, "/groups/g")
        assert "Assignment epoch3" in normalized(consumers.one("main").text)
        assert consumers.row("first")[4:] == ["2", "t", "t-0 t-1", "t-0"]
        assert consumers.row("second")[4:] == ["3", "t", "nothing", "t-1"]
        sharers = await asyncio.to_thread(visitor.page, "/groups/s")
        assert sharers.row("t-0")[1:] == ["0", "1", "0", "2", "0", "0", "1"]
        assert "Start offsets" in sharers.one("main").text and "not read" in sharers.one("main").text
        client.close()


def test_producers_are_shown_with_the_verdict_on_the_next_batch(visitor: Visitor, broker: Embedded) -> None:
    page = visitor.page("/producers?id=77")
    assert page.row("77")[1:] == [
        "orders-2", "2", "0", "0", "2023-11-14 22:13:20.000", "–", "sequence 1: accepted",
    ]  # fmt: skip
    one = visitor.page("/producers/orders/2/77")
    assert (
        one.row("one")[3] == "OUT_OF_ORDER_SEQUENCE_NUMBER" and "A gap: sequence 1 is missing" in one.one("main").text
    )
    assert one.row("an")[3] == "INVALID_PRODUCER_EPOCH"
    owned = visitor.page("/producers?open=yes")
    assert "open since" in owned.one("tbody").text and len(list(owned.one("tbody").all("tr"))) == 1
    visitor.page("/producers/orders/2/78", 404)
    visitor.page("/producers/orders/0/77", 404)


def test_transactions(visitor: Visitor) -> None:
    page = visitor.page("/transactions")
    row = next(page.one("main").all("tbody")).children[0]
    cells = [normalized(cell.text) for cell in row.children]
    assert cells[0].startswith("billing <script>") and cells[3] == "Ongoing" and cells[6] == "paid-0"
    assert page.row("paid-0")[3:] == ["6", "1", "yes, the oldest"]
    assert "matches" in visitor.page("/transactions?state=Empty").one("main").text
    assert "Ongoing" in visitor.page("/transactions?q=BILLING").all("tbody")[0].text


def test_requests_with_their_bytes(visitor: Visitor) -> None:
    page = visitor.page("/requests?api=Produce&sort=number")
    first = next(one for one in page.all("a") if "data-row" in one.attributes)
    shown = visitor.page(first.attributes["href"])
    assert shown.one("h1").text.startswith("Produce v9")
    lines = [[cell.text for cell in row.children] for row in shown.all("tbody")[0].all("tr")]
    found = {line[2]: line for line in lines}
    assert found["request_api_key"][:2] == ["0", "00 00"] and found["request_api_version"] == [
        "2",
        "00 09",
        "request_api_version",
        "9",
    ]
    assert found["acks"][1] == "ff ff" and found["name"] == [
        found["name"][0],
        "07 6f 72 64 65 72 73",
        "name",
        '"orders"',
    ]
    assert any(
        line[0].startswith("+") and '"{\\"order\\": 3' in line[3] for line in lines
    )  # inside of what is compressed
    # Every byte of the frame is shown beside a field, in order.
    data = visitor.request("GET", f"{first.attributes['href']}/request.bin").body
    places = [(int(line[0]), line[1]) for line in lines if line[0].isdecimal()]
    assert [place for place, _ in places] == sorted(place for place, _ in places)
    for place, text in places:
        part = bytes.fromhex(text.partition("…")[0])
        assert data[place : place + len(part)] == part
    assert visitor.request("GET", f"{first.attributes['href']}/nothing.bin").status == 404
    assert "None of the newest" in visitor.page("/requests?client=nobody+has+this").one("main").text
    slow = visitor.page("/requests?slower=600000")
    assert "matches" in slow.one("main").text
    hurt = visitor.page(f"/requests?client={quote('member <script>')}")
    assert "JoinGroup" in hurt.one("tbody").text and "<script>" in hurt.one("tbody").text
    visitor.page("/requests/999999", 404)
    visitor.page("/requests/" + "9" * 30, 404)


def test_faults_and_the_clock(visitor: Visitor) -> None:
    page = visitor.page("/faults")
    assert page.row("1")[1] == "delay" and "ms 5" in page.row("1")[2] and "\\u202e" in page.row("1")[2]
    assert "frozen" in visitor.page("/clock").one("main").text
    nav = visitor.page("/").all("nav")[0].text.split()
    assert nav[-3:] == ["1", "Clock", "frozen"]


def test_templates_are_compiled_in_a_thread(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load(renderer: Renderer, template: str) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        loaded.append(template)

    monkeypatch.setattr(site, "_loaded", set())
    monkeypatch.setattr(Renderer, "load", load)
    for _ in range(2):
        visitor.page("/topics")
    assert loaded == ["topics.html"]


def test_static_files_are_served_with_etags(visitor: Visitor) -> None:
    for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        seen = visitor.request("GET", f"/static/{name}")
        assert (seen.status, seen.headers["Content-Type"]) == (200, f"{kind}; charset=utf-8")
        assert seen.headers["X-Content-Type-Options"] == "nosniff"
        again = visitor.request("GET", f"/static/{name}", If_None_Match=seen.headers["ETag"])
        assert (again.status, again.body) == (304, b"")
        assert b"http://" not in seen.body.replace(b"http://www.w3.org/2000/svg", b"") and b"https://" not in seen.body
    for name in ("base.html", "..%2fsite.py", "%2e%2e/site.py", "site.py"):
        assert visitor.request("GET", f"/static/{name}").status == 404
    assert visitor.request("HEAD", "/topics").body == b""


def test_page_of_a_topic_shows_a_reassignment() -> None:
    async def reassign(bootstrap: str, topic: str, nodes: list[int]) -> None:
        async with Admin(bootstrap) as admin:
            assert await admin.alter_partition_reassignments({(topic, 0): nodes}) == {(topic, 0): None}

    with Embedded(control="127.0.0.1:0", brokers=3) as broker:
        assert broker.control_url
        broker.create_topic("t", 1)
        (partition,) = broker.topology.describe().partitions
        kept, stopped = partition.replicas[0], partition.replicas[-1]
        asyncio.run(reassign(broker.bootstrap, "t", [kept]))
        broker.topology.stop_node(stopped)
        asyncio.run(reassign(broker.bootstrap, "t", [stopped]))
        page = Visitor(broker.control_url).page("/topics/t")
        (cell,) = [one for one in page.all("td") if one.attributes.get("data-label") == "Replicas"]
        expected = f"{stopped}, {kept} in sync: {kept} adding: {stopped} removing: {kept}"
        assert normalized(cell.text) == expected
