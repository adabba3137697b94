"""Schemas by id: from a registry with Confluent's REST API, or from a folder."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.pipeline.jobs.export.value_schemas.registry import Registry
from ottla.pipeline.jobs.export.value_schemas.sources import (
    Folder,
    Schema,
    SourceError,
    message_indexes,
    schema_id,
    schema_of,
)
from ottla_testing.pipeline.schema_registry import FakeRegistry, serving


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    schema_of.cache_clear()
    with serving() as registry:
        yield registry


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the pauses between requests, which pass at once."""
    made: list[float] = []
    monkeypatch.setattr(Registry, "pause", made.append)
    return made


def test_schema_by_id_read_once(served: FakeRegistry) -> None:
    number = served.add("orders-value", '"string"')
    registry = pickle.loads(pickle.dumps(Registry.of(served.url + "/")))
    for _ in range(3):
        assert schema_of(registry, number) == Schema("AVRO", '"string"')
        assert schema_of(registry, 7) is None
    assert served.requests == [f"/schemas/ids/{number}", "/schemas/ids/7"]


def test_latest_schema_of_a_subject_with_its_references(served: FakeRegistry) -> None:
    served.add("common/money", "message old", "PROTOBUF")
    served.add("common/money", "message Money", "PROTOBUF")
    served.add("times", "message Time", "PROTOBUF")
    deeper = [{"name": "time.proto", "subject": "times", "version": 1}]
    served.add("events", "message Event", "PROTOBUF", deeper)
    references = [
        {"name": "money.proto", "subject": "common/money", "version": 2},
        {"name": "event.proto", "subject": "events", "version": 1},
    ]
    served.add("orders-value", "message First", "PROTOBUF")
    served.add("orders-value", "message Order", "PROTOBUF", references)
    found = Registry.of(served.url).latest("orders-value")
    assert (found.type, found.text) == ("PROTOBUF", "message Order")
    texts = {"money.proto": "message Money", "event.proto": "message Event", "time.proto": "message Time"}
    assert found.all_references() == texts
    assert served.requests[:2] == ["/subjects/orders-value/versions/latest", "/subjects/common%2Fmoney/versions/2"]
    with pytest.raises(SourceError, match=r"has no subject users-value: name another with --subject$"):
        Registry.of(served.url).latest("users-value")


def test_references_are_bounded(served: FakeRegistry) -> None:
    served.add("loop", "message Loop", "PROTOBUF", [{"name": "loop.proto", "subject": "loop", "version": 1}])
    with pytest.raises(SourceError, match="more references than 100, or deeper than 16"):
        Registry.of(served.url).latest("loop")
    assert len(served.requests) < 20


@pytest.mark.parametrize("user", ["ann:s3cret", "ann:s3:cret"])
def test_login(served: FakeRegistry, user: str) -> None:
    served.authorization = "Basic " + base64.b64encode(user.encode()).decode()
    number = served.add("orders-value", '"long"')
    own = served.url.replace("http://", f"http://{user.replace(':', ':', 1).replace('t:', 't%3A')}@")
    for registry in (
        Registry.of(served.url, {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": user}),
        Registry.of(served.url, {"schema.registry.basic.auth.user.info": user}),
        Registry.of(own),
    ):
        schema_of.cache_clear()
        assert registry.by_id(number) == Schema("AVRO", '"long"')
        assert "cret" not in f"{registry} {registry!r}"
    served.authorization = "Bearer abc"
    assert Registry.of(served.url, {"bearer.auth.token": "abc"}).by_id(number + 0) is not None
    with pytest.raises(SourceError, match=r"refuses /subjects/o/versions/latest: 401 Unauthorized: Unauthorized$"):
        Registry.of(served.url, {"bearer.auth.token": "other"}).latest("o")


@pytest.mark.parametrize(
    ("url", "configs", "words"),
    [
        ("kafka:8081", {}, "it must be http://HOST:PORT or https://HOST:PORT"),
        ("http://ann:s3cret@host:port", {}, "the schema registry is http://host:port: it must"),
        ("http://host?x=1", {}, "it must be"),
        ("http://host", {"basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "use one"),
        ("http://host", {"ssl.keystore.location": "x"}, "the setting ssl.keystore.location of the schema registry is"),
        ("http://host", {"basic.auth.credentials.source": "SASL_INHERIT"}, "basic.auth.credentials.source"),
        ("http://host", {"bearer.auth.token": "a\nb"}, "characters that a header cannot have"),
    ],
)
def test_unusable_settings_refused(url: str, configs: dict[str, str], words: str) -> None:
    with pytest.raises(SourceError) as refused:
        Registry.of(url, configs)
    assert words in str(refused.value) and "s3cret" not in str(refused.value)


def test_errors_of_the_server_repeated(served: FakeRegistry, pauses: list[float]) -> None:
    number = served.add("orders-value", '"string"')
    served.broken = [(503, b""), (429, b"later")]
    assert Registry.of(served.url).by_id(number) is not None
    assert pauses == [0.2, 1.0]
    served.broken = [(500, b"")] * 4
    with pytest.raises(SourceError, match="cannot be read: 500 Internal Server Error"):
        Registry.of(served.url).latest("orders-value")
    assert pauses == [0.2, 1.0, 0.2, 1.0, 3.0]


def test_no_server(pauses: list[float]) -> None:
    with serving() as registry:
        url = registry.url
    with pytest.raises(SourceError, match=rf"^the schema registry {url} cannot be read: .*refused"):
        Registry.of(url).latest("orders-value")
    assert pauses == [0.2, 1.0, 3.0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"<html>", "sends no JSON for /schemas/ids/5: is it the URL of one"),
        (b"[" * 100_000, "sends no JSON"),
        (b"[]", "has no schema of a known type"),
        (b'{"schema":5}', "has no schema of a known type"),
        (b'{"schema":"x","schemaType":"THRIFT"}', "has no schema of a known type"),
        (b'{"schema":"x","references":[{"name":"y"}]}', "has no schema of a known type"),
        (b'{"schema":"x","references":[{"name":"y","subject":"z","version":1}]}', "no version 1 of z, which is ref"),
        (b" " * 5000, "sends more than 4000 bytes"),
    ],
)
def test_invalid_responses_refused(
    served: FakeRegistry, body: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{Registry.__module__}.BYTES_MAX", 200_000 if body.startswith(b"[[") else 4000)
    served.broken = [(200, body)]
    with pytest.raises(SourceError) as refused:
        Registry.of(served.url).by_id(5)
    assert words in str(refused.value)


def test_redirects_take_no_login_along(served: FakeRegistry) -> None:
    with serving() as other:
        served.broken = [(302, f"{other.url}/schemas/ids/5".encode())]
        with pytest.raises(SourceError, match=r"refuses /schemas/ids/5: 302 Found"):
            Registry.of(served.url, {"bearer.auth.token": "abc"}).by_id(5)
        assert other.requests == []


def test_folder_of_schemas(tmp_path: Path) -> None:
    for name, text in {
        "7.avsc": '"long"',
        "12.proto": "message A {}",
        "common.proto": "message B {}",
        "3.json": "{}",
        "notes.txt": "",
    }.items():
        (tmp_path / name).write_text(text)
    folder = Folder(str(tmp_path))
    assert folder.by_id(7) == Schema("AVRO", '"long"')
    assert folder.by_id(3) == Schema("JSON", "{}")
    assert folder.by_id(8) is None
    assert folder.latest("") == Schema(
        "PROTOBUF", "message A {}", (("common.proto", Schema("PROTOBUF", "message B {}")),)
    )
    (tmp_path / "13.avsc").write_bytes(b"\xff")
    with pytest.raises(SourceError, match=r"13\.avsc is not UTF-8 text"):
        folder.by_id(13)
    with pytest.raises(SourceError, match="cannot read"):
        Folder(str(tmp_path / "missing")).by_id(13)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"has no schema: the names must be like 12\.avsc"):
        Folder(str(tmp_path / "empty")).latest("")


def test_wire_format() -> None:
    assert schema_id(b"\x00\x00\x00\x01\x00rest") == 256
    for value in (b"", b"\x00\x00\x00\x01", b"\x01\x00\x00\x00\x01", json.dumps({"a": 1}).encode()):
        with pytest.raises(ValueError, match="does not begin with a schema id"):
            schema_id(value)
    front = b"\x00\x00\x00\x00\x01"
    assert message_indexes(front + b"\x00rest") == ((0,), 6)
    assert message_indexes(front + b"\x02\x00") == ((0,), 7)
    assert message_indexes(front + b"\x04\x02\x06x") == ((1, 3), 8)
    for wrong in (b"", b"\x80", b"\x04\x02", b"\x80" * 9, b"\x01", b"\x80\x02"):
        with pytest.raises(ValueError, match="message indexes"):
            message_indexes(front + wrong)
