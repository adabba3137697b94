"""Pages of unusual requests: malformed ones, too large ones, without a response, with thousands of fields."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.control.web import side_by_side
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import frame, produce
from ottla_testing.broker.paged import Visitor, sent
from ottla_testing.patience import PATIENCE_S


@pytest.fixture
def broker() -> Iterator[Embedded]:
    with Embedded(control="127.0.0.1:0") as started:
        started.create_topic("t")
        yield started


@pytest.fixture
def visitor(broker: Embedded) -> Visitor:
    assert broker.control_url
    return Visitor(broker.control_url)


def send_frames(broker: Embedded, *frames: bytes, responses: int) -> None:
    """Sends frames that may be malformed, and waits for their responses or for the end of the connection."""
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as sock, sock.makefile("rb") as stream:
        sock.sendall(b"".join(frames))
        for _ in range(responses):
            (size,) = struct.unpack(">i", stream.read(4))
            assert len(stream.read(size)) == size
        if not responses:
            assert stream.read() == b""


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\x00\x01\x00\x00\x00\x07\xff\xff",  # an unknown API
        b"\x00\x03\x00\x09\x00\x00\x00\x08\x00\x04\xe2\x80\xae<\x00\x05<b>",  # a Metadata request cut within a name
        b"\x00\x00\x00\x09\x00\x00\x00\x09\xff\xff\x00\x00\xff\xff\x00\x00\x00\x01\x7f",
        b"\x00\x12\x7f\xff\x00\x00\x00\x0a\xff\xff\xff",
        b"\x01",
    ],
)
def test_malformed_request_is_shown_with_its_readable_part(data: bytes, broker: Embedded, visitor: Visitor) -> None:
    send_frames(broker, sized(data), responses=1 if data[:2] == b"\x00\x12" else 0)
    page = visitor.page("/requests")
    link = next(one.attributes["href"] for one in page.all("a") if "data-row" in one.attributes)
    shown = visitor.page(link)
    assert visitor.request("GET", f"{link}/request.bin").body == data
    assert shown.all("table") and not shown.all("b")
    for other in ("/", "/requests?ending=closed", "/requests?sort=-duration"):
        visitor.page(other)


def test_page_of_a_request_with_secrets_too_large_or_without_response(broker: Embedded, visitor: Visitor) -> None:
    of = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    secret = of(name="alice", mechanism=1, iterations=4096, salt=b"salt-is-secret", salted_password=b"password-secret!")
    send_frames(broker, frame(AlterUserScramCredentialsRequest(deletions=[], upsertions=[secret]), 0, 1), responses=1)
    send_frames(broker, frame(produce(sent(b"x" * 1_048_500)), 9, 2), responses=1)
    send_frames(
        broker, frame(produce(sent(b"silent"), acks=0), 9, 3), frame(MetadataRequest(topics=None), 9, 4), responses=1
    )
    page = visitor.page("/requests?sort=number")
    links = [one.attributes["href"] for one in page.all("a") if "data-row" in one.attributes]
    shown = [visitor.page(link).one("main").text for link in links]
    assert "Credentials are replaced by zeros" in shown[0] and "alice" in shown[0]
    for seen in (shown[0].encode(), visitor.request("GET", f"{links[0]}/request.bin").body):
        assert b"secret" not in seen
    assert (
        "Its bytes are too large to be kept" in shown[1]
        and visitor.request("GET", f"{links[1]}/request.bin").status == 404
    )
    assert "No response is due" in shown[2] and "silent" in shown[2]


def test_page_of_a_request_with_thousands_of_fields_is_cut(
    broker: Embedded, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "LINES_MAX", 150)
    of: Any = MetadataRequest.MetadataRequestTopic
    send_frames(broker, frame(MetadataRequest(topics=[of(name=f"t-{n}") for n in range(300)]), 5, 1), responses=1)
    page = visitor.page("/requests/1")
    assert "Further lines are omitted" in page.one("main").text
    assert all(len(list(table.all("tr"))) <= side_by_side.LINES_MAX + 1 for table in page.all("table"))


def test_lists_cut_a_long_client_id(broker: Embedded, visitor: Visitor) -> None:
    long = frame(MetadataRequest(topics=[]), 4, 1, client_id="x" * 30_000)
    send_frames(broker, *[long] * 20, responses=20)
    for path in ("/", "/requests", "/v1/overview"):
        assert len(visitor.request("GET", path).body) < 60_000, path
    assert "x" * 30_000 in visitor.page("/requests/1").one("main").text
