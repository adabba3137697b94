"""A browser without a window: requests pages, parses their HTML, and lists their faults.

Also brokers full of data, with contents that attack a page.
"""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import urlencode, urljoin, urlsplit

from ottla.broker import Embedded
from ottla.broker.testing.embedded import AclEntry
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, assignment_bytes, subscription_bytes
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.records import batch, legacy
from ottla_testing import TESTS
from ottla_testing.broker.administering_broker import AUTHORIZER
from ottla_testing.broker.harness import Client, produce
from ottla_testing.broker.transacting import Owner
from ottla_testing.patience import PATIENCE_S
from ottla_testing.protocol.batches import batch_of

START_MS = 1_700_000_000_000
VOID = {"br", "img", "input", "link", "meta", "hr"}
HURTFUL = "<script>alert(1)</script>\"'&{{7*7}}\x00\x1b[31m\u202etxt.exe\u2066"
"""A name or a value that would run, print a control character, turn what follows around, or be a template."""
NAMED = "x\" onmouseover='alert(2)' <b>&amp;\u202e"
SECURE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(slots=True)
class Element:
    """One element: its name, its attributes, its children."""

    name: str
    attributes: dict[str, str]
    parent: Element | None = None
    parts: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        """The elements directly in it."""
        return [part for part in self.parts if isinstance(part, Element)]

    def all(self, name: str = "") -> Iterator[Element]:
        """Returns this element and all below it, of that name."""
        left: list[Element] = [self]
        while left:
            one = left.pop()
            if name in ("", one.name):
                yield one
            left.extend(part for part in reversed(one.parts) if not isinstance(part, str))

    @property
    def text(self) -> str:
        """Its text and that of all elements below it."""
        return "".join(part if isinstance(part, str) else part.text for part in self.parts)

    def within(self, name: str) -> Element | None:
        """Returns the nearest enclosing element of that name."""
        found = self.parent
        while found is not None and found.name != name:
            found = found.parent
        return found


class Document(HTMLParser):
    """A page, parsed strictly: elements are closed in order, and no attribute occurs twice."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.root = Element("", {})
        self._open = self.root
        self._named: dict[str, list[Element]] = {"": [self.root]}  # in their order; all of them under ""
        assert text.startswith("<!doctype html>\n")
        self.feed(text)
        self.close()
        if self._open is not self.root:
            self.faults.append(f"<{self._open.name}> is not closed")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.faults.append(f"<{tag}> has an attribute twice")
        made = Element(tag, {name: value or "" for name, value in attrs}, self._open)
        self._open.parts.append(made)
        self._named[""].append(made)
        self._named.setdefault(tag, []).append(made)
        if tag not in VOID:
            self._open = made

    def handle_endtag(self, tag: str) -> None:
        if self._open.name != tag:
            self.faults.append(f"</{tag}> closes <{self._open.name}>")
        if self._open.parent is not None:
            self._open = self._open.parent

    def handle_data(self, data: str) -> None:
        self._open.parts.append(data)

    def all(self, name: str = "") -> list[Element]:
        """Returns all elements of that name."""
        return list(self._named.get(name, ()))

    def one(self, name: str) -> Element:
        """Returns the only element of that name."""
        (found,) = self.all(name)
        return found

    @property
    def links(self) -> list[str]:
        """The targets of its links."""
        return [one.attributes["href"] for one in self.all("a")]

    def row(self, text: str) -> list[str]:
        """Returns the cells of the first row whose head, or first cell, is this text; runs of blanks count as one."""
        for row in self.all("tr"):
            cells = [one for one in row.children if one.name in ("td", "th")]
            result = [" ".join(cell.text.split()) for cell in cells]
            if result and result[0].split(" ")[0] == text:
                return result
        raise AssertionError(f"no row of {text}")


def faults_of(document: Document) -> list[str]:
    """Returns the violations of rules of security and accessibility in a page."""
    found = list(document.faults)

    def need(true: bool, fault: str) -> None:
        if not true:
            found.append(fault)

    (html,) = document.all("html")
    need(bool(html.attributes.get("lang")), "no language")
    need(bool(document.one("title").text.strip()), "no title")
    for name in ("main", "header", "footer", "h1"):
        need(len(document.all(name)) == 1, f"{len(document.all(name))} of <{name}>")
    need(len(document.all("nav")) >= 1, "no <nav>")
    navs = [one.attributes.get("aria-label", "") for one in document.all("nav")]
    need(all(navs), "a <nav> without a name")
    everything = document.all()
    listed = [one.attributes["id"] for one in everything if "id" in one.attributes]
    ids = set(listed)
    need(len(ids) == len(listed), "an id comes twice")
    for one in everything:
        for name, value in one.attributes.items():
            need(not name.startswith("on") and name != "style", f"<{one.name} {name}> is inline")
            if name in ("aria-labelledby", "list"):
                need(value in ids, f"{name} {value} is nowhere")
            if name in ("href", "src", "action"):
                need(not urlsplit(value).scheme and not value.startswith("//"), f"{name} {value} is elsewhere")
    need(not document.all("style"), "a <style>")
    need(all("src" in one.attributes and not one.text for one in document.all("script")), "an inline script")
    (skip,) = [one for one in document.all("a") if one.attributes.get("class") == "skip"]
    need(skip.attributes["href"].removeprefix("#") in ids, "the skip link leads nowhere")
    for one in document.all("img"):
        need("alt" in one.attributes, "an image without a text")
    for one in [*document.all("input"), *document.all("select"), *document.all("textarea")]:
        if one.attributes.get("type") != "hidden":
            named = one.within("label")
            need(named is not None and bool(named.text.strip()), f"a field without a label: {one.attributes}")
    for one in [*document.all("a"), *document.all("button"), *document.all("summary")]:
        need(bool(one.text.strip() or one.attributes.get("aria-label")), f"a <{one.name}> without a text")
    for table in document.all("table"):
        need(len(list(table.all("caption"))) == 1, "a table without a caption")
        heads = list(table.all("th"))
        need(bool(heads) and all(one.attributes.get("scope") in ("col", "row") for one in heads), "a <th> of no scope")
        widths = {
            sum(int(cell.attributes.get("colspan", "1")) for cell in row.children if cell.name in ("td", "th"))
            for row in table.all("tr")
        }
        need(len(widths) == 1, f"rows of {sorted(widths)} cells")
    levels = [int(one.name[1]) for one in everything if re.fullmatch("h[1-6]", one.name)]
    need(levels[:1] == [1] and all(b - a <= 1 for a, b in pairwise(levels)), "headings skip")
    return found


@dataclass(frozen=True, slots=True)
class Seen:
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """Its body as text."""
        return self.body.decode()

    @property
    def document(self) -> Document:
        """Its body as a page."""
        return Document(self.text)


class Visitor:
    """Requests pages with the headers of a browser."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = url.removeprefix("http://")
        self.origin = url

    def request(self, method: str, path: str, body: str | None = None, **headers: str | None) -> Seen:
        """Returns the response. Headers are named with underscores; None omits one."""
        wanted: dict[str, str | None] = {
            "User-Agent": "Mozilla/5.0 (X11; Linux x86_64)",
            "Accept": "text/html,*/*",
            "Host": self.address,
        }
        if method == "POST":
            wanted |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in wanted.items():
                if value is not None:
                    connection.putheader(name, value)
            data = None if body is None else body.encode()
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            return Seen(response.status, response.headers, response.read())
        finally:
            connection.close()

    def page(self, path: str, status: int = 200) -> Document:
        """Returns a page, which must have no faults."""
        seen = self.request("GET", path)
        assert seen.status == status, (path, seen.status, seen.text[-600:])
        assert seen.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = seen.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert {name: seen.headers[name] for name in SECURE} == SECURE
        document = seen.document
        assert faults_of(document) == [], path
        return document

    def post(self, path: str, status: int = 303, **form: object) -> Seen:
        """Sends a form."""
        seen = self.request("POST", path, urlencode(form))
        assert seen.status == status, (path, seen.status, seen.text[-600:])
        return seen

    def crawl(self, start: str = "/", most: int = 400) -> dict[str, Document]:
        """Returns all reachable pages, one of those whose URLs differ only in numbers and queries."""
        found: dict[str, Document] = {}
        kinds: set[str] = set()
        left = [start]
        while left and len(found) < most:
            path = left.pop(0)
            kind = re.sub(r"[0-9]+", "N", re.sub(r"=[^&]*", "", path))
            if kind in kinds or re.search(r"/(key|value|header-\d+|\w+\.bin)$", path):
                continue
            kinds.add(kind)
            found[path] = self.page(path)
            left += [urljoin(path, link) for link in found[path].links if not link.startswith("#")]
        return found


def sent(*values: bytes | None, at_ms: int = START_MS, key: bytes | None = None, headers: object = (), **more: object):
    """Returns a batch whose records are a second apart."""
    given = tuple(headers)  # type: ignore[arg-type]
    return batch_of([batch.Record(n, at_ms + 1000 * n, key, value, given) for n, value in enumerate(values)], **more)


async def _join(client: Client, group: str, topic: str) -> None:
    subscription = subscription_bytes(ConsumerProtocolSubscription(topics=[topic]))
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription)
    joined = await client.call(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=600_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        ),
        3,
        client_id=f"member {HURTFUL}",
    )
    assert joined.error_code == 0
    given = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=joined.member_id, assignment=assignment_bytes([(topic, [0, 1])])
    )
    synced = await client.call(
        SyncGroupRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[given]
        ),
        2,
    )
    assert synced.error_code == 0
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    one = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata=NAMED)
    commit = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[of(name=topic, partitions=[one])],
    )
    assert (await client.call(commit, 3)).topics[0].partitions[0].error_code == 0


async def _filled(broker: Embedded) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    client = await Client.connect(int(port), host)

    async def put(data: object, topic: str, partition: int = 0, version: int = 9) -> None:
        response = await client.call(produce(data, topic, partition), version)
        assert response.responses[0].partition_responses[0].error_code == 0

    await put(sent(*(b'{"order": %d, "total": 1.10, "x": [1, {}]}' % n for n in range(10)), codec=4), "orders")
    await put(sent(b"plain", None, b"", bytes(range(256)), at_ms=START_MS + 100_000, key=b"k"), "orders")
    header = batch.Header(NAMED, HURTFUL.encode()), batch.Header("none", None), batch.Header("raw", b"\xff\0")
    await put(sent(HURTFUL.encode(), at_ms=START_MS + 200_000, key=HURTFUL.encode(), headers=header), "orders", 1)
    await put(sent(*[b"v" * 1500] * 40, at_ms=START_MS, codec=1), "segments")
    for number in range(4):
        await put(sent(*[b"%d" % number] * 30, at_ms=START_MS + 50_000 * number), "segments")
    old = [batch.Record(n, START_MS + n, b"k", b"old %d" % n) for n in range(3)]
    await put(legacy.build(old, magic=1), "old", version=2)
    await put(legacy.build(old, magic=0, codec=1), "older", version=0)
    await put(sent(b"numbered", producer_id=77, producer_epoch=2, base_sequence=0), "orders", 2)
    owner = Owner(client, f"billing {HURTFUL}")
    assert await owner.init() == 0
    for committed in (True, False):
        assert await owner.add(("paid", 0)) == {("paid", 0): 0}
        assert await owner.send(b"committed" if committed else b"aborted", b"two", topic="paid") == 0
        assert await owner.end(committed, 3) == 0
    assert await owner.add(("paid", 0)) == {("paid", 0): 0}
    assert await owner.send(b"open", topic="paid") == 0
    await _join(client, "readers", "orders")
    of = OffsetCommitRequest.OffsetCommitRequestTopic
    one = of.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    for name in (f"g {HURTFUL}", "a/b", ".."):
        commit = OffsetCommitRequest(group_id=name, topics=[of(name="orders", partitions=[one])])
        assert (await client.call(commit, 3)).topics[0].partitions[0].error_code == 0
    client.close()


def full() -> Embedded:
    """Starts a broker with data of every kind, which its web pages may change; the caller stops it."""
    folder = TESTS / "broker" / "control" / "web" / "schemas"
    broker = Embedded(
        release="ottla",
        configs={"inter.broker.protocol.version": "2.8", "broker.id": "1", **AUTHORIZER},
        control="127.0.0.1:0",
        control_write=True,
        schemas={"decoded": folder / "note.avsc", "decoded:key": folder / "note.avsc"},
    ).start()
    try:
        broker.create_topic("orders", 3, {"retention.ms": "-1"})
        # A check of retention would delete records with old times.
        broker.create_topic("segments", 1, {"segment.ms": "60000", "index.interval.bytes": "0", "retention.ms": "-1"})
        broker.create_topic("paid", 1)
        broker.create_topic("old", 1, {"message.format.version": "0.10.2", "retention.ms": "-1"})
        broker.create_topic("older", 1, {"message.format.version": "0.9.0", "retention.ms": "-1"})
        broker.create_topic("empty", 2)
        broker.create_topic("decoded")
        broker.send_many("decoded", [(b"\0\0\0\0\7\2a", b"\x0a<b>&u"), (b"\2k", b"\xffnot decoded")])
        asyncio.run(_filled(broker))
        entry = AclEntry("TOPIC", f"a {HURTFUL}", "PREFIXED", f"User:{HURTFUL}", "*", "READ", "DENY")
        broker.add_acls([entry])
        broker.faults.delay("Metadata", 5, client_id=HURTFUL, times=1)
        broker.clock.freeze()
    except BaseException:
        broker.stop()
        raise
    return broker
