"""No credential leaves the broker: every API and version, requests and responses, each secret text is searched in the
blanked frame."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.recording.exchange import exchange_of
from ottla.broker.recording.redaction import KEYS, blanked, is_secret, may_carry
from ottla.protocol.apis import Api, apis
from ottla.protocol.compiler import build, parse
from ottla.protocol.headers import request_header, response_header
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest as Alter
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Scram
from ottla.protocol.primitives import Array, Blob, Fixed, Mark, Nullable, UuidLeaf
from ottla.protocol.schema import Group, group_of, spec
from ottla_testing.each import each

# The secrets, by message and path. Values of configs are secret here, since no release has a config of that name.
SECRET = {
    "AlterUserScramCredentialsRequest.upsertions.salt",
    "AlterUserScramCredentialsRequest.upsertions.salted_password",
    "CreateDelegationTokenResponse.hmac",
    "DescribeDelegationTokenResponse.tokens.hmac",
    "RenewDelegationTokenRequest.hmac",
    "SaslAuthenticateRequest.auth_bytes",
    "SaslAuthenticateResponse.auth_bytes",
    "ExpireDelegationTokenRequest.hmac",
    "CreateTopicsRequest.topics.configs.value",
    "CreateTopicsResponse.topics.configs.value",
    "AlterConfigsRequest.resources.configs.value",
    "IncrementalAlterConfigsRequest.resources.configs.value",
    "DescribeConfigsResponse.results.configs.value",
    "DescribeConfigsResponse.results.configs.synonyms.value",
}
# Bytes that are not secret. A new field of bytes must be added here or above.
HARMLESS_BYTES = {
    "ProduceRequest.topic_data.partition_data.records",
    "FetchResponse.responses.partitions.records",
    "ShareFetchResponse.responses.partitions.records",
    "JoinGroupRequest.protocols.metadata",
    "JoinGroupResponse.members.metadata",
    "SyncGroupRequest.assignments.assignment",
    "SyncGroupResponse.assignment",
    "DescribeGroupsResponse.groups.members.member_metadata",
    "DescribeGroupsResponse.groups.members.member_assignment",
    "PushTelemetryRequest.metrics",
}


UUID = bytes(range(1, 17))


def filled(codec: Any, path: str, found: dict[str, bool]) -> Any:
    """Returns a value with a unique mark in each text and bytes field; `found` gets their paths, and which are
    bytes."""
    if isinstance(codec, Fixed):
        return True if codec.fmt == "?" else 2  # of resources: topics
    if isinstance(codec, UuidLeaf):
        return UUID
    if isinstance(codec, Blob):
        found[path] = not codec.text
        return f"<{path}>" if codec.text else f"<{path}>".encode()
    if isinstance(codec, Array):
        return [filled(codec.item, path, found)]
    if isinstance(codec, Nullable):
        return filled(codec.inner, path, found)
    if isinstance(codec, Mark):
        return True
    assert isinstance(codec, Group)
    fields = [*codec.plan, *(codec.tags or {}).values()]
    return codec.cls(**{name: filled(item, f"{path}.{name}", found) for name, item in fields})


def cases(api: Api) -> Iterator[tuple[type, int, bool]]:
    for cls, request in ((api.request, True), (api.response, False)):
        for version in spec(cls).versions.range():
            yield cls, version, request


def header(key: int, version: int, cls: type, request: bool) -> bytes:
    flexible = version in spec(cls).flexible
    return request_header(key, version, 7, b"me", flexible) if request else response_header(7, key, flexible)


@each("key", sorted(apis()))
def test_only_secrets_are_blanked_in_every_api(key: int) -> None:
    for cls, version, request in cases(apis()[key]):
        found: dict[str, bool] = {}
        value = filled(group_of(cls, version), cls.__name__, found)
        unsorted = {path for path, is_bytes in found.items() if is_bytes} - SECRET - HARMLESS_BYTES
        assert not unsorted, f"secret or not? {unsorted}"
        head = header(key, version, cls, request)
        frame = head + build(value, version)
        shown = blanked(frame, key, version, request)
        assert len(shown) == len(frame) and shown.startswith(head)
        parse(cls, version, shown, len(head))
        assert shown.count(UUID) == frame.count(UUID)
        for path in found:
            assert (f"<{path}>".encode() in shown) is (path not in SECRET), (version, path)
        if not SECRET & found.keys():
            assert shown == frame
        else:
            assert key in KEYS


@each("key", sorted(KEYS))
@each("request_", [True, False])
def test_undecodable_frame_keeps_only_its_header(key: int, request_: bool) -> None:
    head = request_header(key, 1, 7, b"me", False) if request_ else response_header(7, key, False)
    shown = blanked(head + b"\x7f" + b"password" * 9, key, 1, request_)
    has_secrets = any(
        path.startswith((f"{apis()[key].name}Request" if request_ else f"{apis()[key].name}Response") + ".")
        for path in SECRET
    ) if key in apis() else True  # fmt: skip
    assert (b"password" in shown) is not has_secrets
    assert shown.startswith(head) and len(shown) == len(head) + 73


@pytest.mark.parametrize("size", range(11))
def test_short_frame_is_blanked(size: int) -> None:
    frame = struct.pack(">hhih", 36, 0, 1, 300)[:size]
    kept = 8 if size > 9 else 4  # a frame without a header may be a password
    assert blanked(frame, 36, 0)[:kept] == frame[:kept] and len(blanked(frame, 36, 0)) == size
    assert blanked(b"1234567"[:size], 36, 0, False) == b"1234\0\0\0"[: min(size, 7)]


@each("size", [1, 30, 6000])  # long enough for the client id whose length these bytes seem to give
@each("user", [b"u", b"user", b"rname", b"Admin", b"A", b"3user", b"admin12", b"$admin1"])
def test_bare_password_is_blanked(user: bytes, size: int) -> None:
    """SASL PLAIN of clients without SaslHandshake v1: the token is sent in place of a header."""
    token = b"\0" + user + b"\0" + b"password" * size
    key, version = struct.unpack_from(">hh", token)
    shown = blanked(token, key, version)
    assert shown == token[:4] + bytes(len(token) - 4) and may_carry(key, version)
    assert exchange_of(1, None, 0, 0, token).client_id is None  # type: ignore[arg-type]


def test_frame_of_an_unknown_api_keeps_only_its_header() -> None:
    head = request_header(999, 1, 7, b"me", False)
    assert blanked(head + b"body", 999, 1) == head + bytes(4)
    versions = request_header(18, 99, 7, b"me", True) + b"\x04tool"
    assert blanked(versions, 18, 99) == versions, "ApiVersions is for finding out what is known"
    assert not may_carry(3, 12) and may_carry(3, 99)


def test_trailing_bytes_of_librdkafka_are_kept() -> None:
    made = Scram.ScramCredentialUpsertion(name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"word")
    frame = request_header(51, 0, 1, b"", True) + build(Scram(deletions=[], upsertions=[made]), 0) + b"\0"
    shown = blanked(frame, 51, 0)
    assert shown == frame.replace(b"salt", bytes(4)).replace(b"word", bytes(4))


def test_config_values_are_secret_by_their_definitions() -> None:
    """As in Kafka's own logs: known configs that are no passwords are shown."""
    shown = [(2, "retention.ms"), (4, "log.retention.hours"), (4, "listener.name.a.max.connections"), (16, "metrics")]
    shown += [(4, "listener.name.a.sasl.server.max.receive.size"), (32, "consumer.session.timeout.ms")]
    hidden = [(2, "retention.mss"), (4, "ssl.keystore.password"), (4, "sasl.jaas.config"), (99, "retention.ms")]
    hidden += [(4, "listener.name.a.scram-sha-256.sasl.jaas.config"), (4, "listener.name.a.ssl.key.password")]
    assert not [name for kind, name in shown if is_secret(kind, name, "x")]
    assert not [name for kind, name in hidden if not is_secret(kind, name, "x")]
    assert not is_secret(8, "kafka.Log", "DEBUG") and is_secret(8, "kafka.Log", "hunter2")


def test_blanked_text_keeps_its_length() -> None:
    configs = [("retention.ms", "1"), ("pass", "geheim-ß"), ("null", None)]
    resource = Alter.AlterConfigsResource(
        resource_type=2,
        resource_name="t",
        configs=[
            Alter.AlterConfigsResource.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in configs
        ],
    )
    head = request_header(44, 1, 1, b"", True)
    shown = blanked(head + build(Alter(resources=[resource], validate_only=False), 1), 44, 1)
    found = parse(Alter, 1, shown, len(head)).resources[0].configs
    assert [one.value for one in found] == ["1", "*" * 9, None]
