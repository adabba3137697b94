"""Delegation tokens: issue, rules of renewal and expiry, access control, and tokens over restarts and restores."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker import Embedded
from ottla.broker.clock import ManualClock
from ottla.broker.config.values import Config
from ottla.broker.errors import Refused
from ottla.broker.releases.profiles import profile
from ottla.broker.security.acls import Acl
from ottla.broker.security.scram import Credential, Mechanism
from ottla.broker.security.tokens import (
    RECORD_BYTES_MAX,
    REMOVED_AT_ONCE,
    DelegationTokens,
    Rules,
    TokenSettings,
    token_settings,
)
from ottla.client import Admin
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_records.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.protocol.limits import INT64_MAX
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.storage.errors import StorageError
from ottla_testing.broker.adopting import kraft, metadata_batch, values_of
from ottla_testing.broker.delegating import (
    CONFIGS,
    DAY_MS,
    HOUR_MS,
    KEY,
    SECURED,
    create,
    describe,
    described,
    expire,
    logged_in,
    renew,
)
from ottla_testing.broker.harness import Client, running
from ottla_testing.certificates import Authority, pem_configs
from ottla_testing.each import each

NONE, UNSUPPORTED = ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION
DISABLED, NOT_FOUND = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_NOT_FOUND
MISMATCH, EXPIRED = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ErrorCode.DELEGATION_TOKEN_EXPIRED
UNAUTHORIZED = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ANN, BOB, CAT = "User:ann", "User:bob", "User:cat"


# Issue and description


@each("version", [1, 2, 3])
async def test_token_is_issued_and_described(version: int, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann, now_ms = await logged_in(broker), broker.clock.now_ms()
        made = await create(ann, BOB, CAT, version=version)
        assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "ann")
        assert made.hmac == hmac.digest(KEY.encode(), made.token_id.encode(), "sha512")
        assert len(made.token_id) == 22 and not made.token_id.startswith("-")
        times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
        assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
        requester = ("User", "ann") if version >= 3 else ("", "")
        assert (made.token_requester_principal_type, made.token_requester_principal_name) == requester
        response = await describe(ann, version=version)
        (token,) = response.tokens
        assert (response.error_code, token.token_id, token.hmac) == (0, made.token_id, made.hmac)
        assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == times
        assert (token.principal_type, token.principal_name) == ("User", "ann")
        assert (token.token_requester_principal_type, token.token_requester_principal_name) == requester
        assert [(one.principal_type, one.principal_name) for one in token.renewers] == [
            ("User", "bob"),
            ("User", "cat"),
        ]
        assert (await create(ann, version=version)).token_id != made.token_id


@each(
    ("wanted_ms", "configured", "life_ms", "renewal_ms"),
    [
        (-1, {}, 7 * DAY_MS, DAY_MS),
        (0, {}, 7 * DAY_MS, DAY_MS),
        (8 * DAY_MS, {}, 7 * DAY_MS, DAY_MS),
        (2 * DAY_MS, {}, 2 * DAY_MS, DAY_MS),
        (5000, {}, 5000, 5000),
        (-1, {"delegation.token.max.lifetime.ms": "7000", "delegation.token.expiry.time.ms": "3000"}, 7000, 3000),
        (6000, {"delegation.token.expiry.time.ms": "6001"}, 6000, 6000),
    ],
)
async def test_life_is_the_shorter_of_the_request_and_the_configs(
    wanted_ms: int, configured: dict[str, str], life_ms: int, renewal_ms: int, tmp_path: Path
) -> None:
    async with running(tmp_path, overrides=CONFIGS | configured) as broker:
        made = await create(await logged_in(broker), max_lifetime_ms=wanted_ms)
        assert made.max_timestamp_ms - made.issue_timestamp_ms == life_ms
        assert made.expiry_timestamp_ms - made.issue_timestamp_ms == renewal_ms


async def test_times_do_not_overflow(tmp_path: Path) -> None:
    forever = {f"delegation.token.{name}.ms": str(INT64_MAX) for name in ("max.lifetime", "expiry.time")}
    async with running(tmp_path, overrides=CONFIGS | forever) as broker:
        ann = await logged_in(broker)
        made = await create(ann, max_lifetime_ms=INT64_MAX)
        assert made.max_timestamp_ms == made.expiry_timestamp_ms == INT64_MAX
        assert await renew(ann, made.hmac) == (0, INT64_MAX)
        assert await expire(ann, made.hmac, INT64_MAX) == (0, INT64_MAX)


async def test_owners_select_the_tokens_of_those_that_own_requested_or_may_renew_them(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:  # without an authorizer
        ann, bob = await logged_in(broker), await logged_in(broker, "bob")
        one = (await create(ann, CAT)).token_id
        two = (await create(bob)).token_id
        three = (await create(ann, owner=CAT)).token_id
        assert await described(ann) == [one, two, three]
        assert await described(ann, []) == []
        assert await described(bob, [ANN]) == [one, three]
        assert await described(bob, [CAT]) == [one, three]
        assert await described(bob, [BOB, CAT]) == [one, two, three]
        assert await described(bob, ["Group:ann", "User:dan"]) == []


# Refusals


async def test_clients_without_a_login_are_refused_first(tmp_path: Path) -> None:
    """In tests/broker/security/sasl/test_tokens.py those that have logged in with a token."""
    for configs in (CONFIGS, SECURED):
        async with running(tmp_path, overrides=configs) as broker:
            client = await broker.client()
            made = await create(client, "Group:x", owner="User:joe")
            assert (made.error_code, made.principal_name, made.issue_timestamp_ms) == (64, "joe", -1)
            assert await renew(client, b"x") == await expire(client, b"x") == (64, -1)
            assert (await describe(client)).error_code == 64


@each(("certificate", "code"), [(False, 64), (True, 0)])
async def test_certificate_of_a_client_is_a_login(certificate: bool, code: int, tmp_path: Path) -> None:
    """On a listener with TLS alone a client without one is anonymous."""
    authority = Authority(tmp_path)
    stores = pem_configs(authority.issue("server"), authority.trusted)
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.client.auth": "requested",
        "delegation.token.secret.key": KEY,
        **stores,
    }
    async with running(tmp_path / "data", overrides=configs) as broker:
        context = ssl.create_default_context(cafile=str(authority.trusted))
        if certificate:
            context.load_cert_chain(authority.issue("joe", common_name="joe"))
        port = broker.ports[1]
        client = Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost"))
        made = await create(client, BOB)
        assert made.error_code == (await describe(client)).error_code == code
        assert made.principal_name.startswith("CN=joe") is certificate
        client.close()


@each(("release", "refused_ms"), [("2.8", -1), ("3.2", -1), ("3.6", 0), ("4.3", 0)])
async def test_tokens_are_disabled_without_a_key(release: str, refused_ms: int, tmp_path: Path) -> None:
    for key in ({}, {"delegation.token.secret.key": ""}):
        async with running(tmp_path / release, release=release, overrides=SECURED | key) as broker:
            ann = await logged_in(broker)
            made = await create(ann, version=2)
            times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
            assert (made.error_code, made.principal_name, times) == (DISABLED, "ann", (refused_ms,) * 3)
            assert (made.token_id, made.hmac) == ("", b"")
            made = await create(ann, "Group:x", version=2)
            assert (made.error_code, made.issue_timestamp_ms) == (ErrorCode.INVALID_PRINCIPAL_TYPE, -1)
            assert await renew(ann, b"x") == await expire(ann, b"x") == (DISABLED, refused_ms)
            response = await describe(ann, version=2)
            assert (response.error_code, response.tokens) == (DISABLED, [])


async def test_metadata_version_without_tokens(tmp_path: Path) -> None:
    """3.6-IV2 is level 14."""
    async with running(
        tmp_path, release="4.3", overrides=CONFIGS | {"ottla.features": "metadata.version=13"}
    ) as broker:
        ann = await logged_in(broker)
        made = await create(ann)
        assert (made.error_code, made.issue_timestamp_ms, made.hmac) == (UNSUPPORTED, 0, b"")
        assert await renew(ann, b"x") == await expire(ann, b"x") == (UNSUPPORTED, 0)
        assert await described(ann) == []
        wanted = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="metadata.version", max_version_level=14, upgrade_type=1
        )
        response = await ann.call(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[wanted]), 1)
        assert response.error_code == 0
        made = await create(ann)
        assert (made.error_code, await described(ann)) == (NONE, [made.token_id])


# Renewal and expiry


async def test_renewal_moves_the_expiry_up_to_the_end_of_life(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann, bob, cat = [await logged_in(broker, user) for user in ("ann", "bob", "cat")]
        made = await create(ann, BOB)
        broker.clock.advance(HOUR_MS)
        now_ms = broker.clock.now_ms()
        for period_ms, granted_ms in ((-1, DAY_MS), (0, DAY_MS), (2 * DAY_MS, DAY_MS), (60_000, 60_000)):
            assert await renew(ann, made.hmac, period_ms) == (0, now_ms + granted_ms)
        assert await renew(bob, made.hmac) == (0, now_ms + DAY_MS)
        assert (await describe(ann)).tokens[0].expiry_timestamp == now_ms + DAY_MS
        assert await renew(cat, made.hmac) == (MISMATCH, 0)
        assert await renew(ann, made.hmac[:-1]) == (NOT_FOUND, 0)
        for _ in range(8):
            broker.clock.advance(20 * HOUR_MS)
            code, expiry_ms = await renew(ann, made.hmac)
            assert code == 0
        assert expiry_ms == made.max_timestamp_ms


async def test_expiry_is_moved_and_the_token_removed(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann, bob, cat = [await logged_in(broker, user) for user in ("ann", "bob", "cat")]
        made, now_ms = await create(ann, BOB), broker.clock.now_ms()
        assert await expire(bob, made.hmac, 60_000) == (0, now_ms + 60_000)
        assert await expire(ann, made.hmac, 100 * DAY_MS) == (0, made.max_timestamp_ms)
        assert await expire(ann, made.hmac, 0) == (0, now_ms)
        assert await renew(ann, made.hmac) == (0, now_ms + DAY_MS)
        assert await expire(cat, made.hmac) == (MISMATCH, 0)
        assert await expire(ann, b"") == (NOT_FOUND, 0)
        assert await described(ann) == [made.token_id]
        assert await expire(bob, made.hmac) == (0, now_ms)
        assert await described(ann) == []
        assert await renew(ann, made.hmac) == await expire(ann, made.hmac) == (NOT_FOUND, 0)


async def test_requester_who_is_not_the_owner_sees_the_token_and_may_not_change_it(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann, bob = await logged_in(broker), await logged_in(broker, "bob")
        made = await create(ann, owner=BOB)
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "ann")
        assert await described(ann) == [made.token_id]
        assert (await renew(ann, made.hmac))[0] == (await expire(ann, made.hmac))[0] == MISMATCH
        assert (await renew(bob, made.hmac))[0] == (await expire(bob, made.hmac))[0] == NONE


@each(
    ("release", "renewals", "expiries"),
    [
        ("4.3", (EXPIRED, EXPIRED), (EXPIRED, MISMATCH, NONE)),
        ("3.7", (EXPIRED, EXPIRED), (EXPIRED, MISMATCH, NONE)),
        ("3.6", (EXPIRED, EXPIRED), (EXPIRED, EXPIRED, EXPIRED)),
        ("3.2", (EXPIRED, MISMATCH), (EXPIRED, MISMATCH, EXPIRED)),
        ("2.0", (EXPIRED, MISMATCH), (EXPIRED, MISMATCH, EXPIRED)),
    ],
)
async def test_expired_token_before_it_is_removed(
    release: str, renewals: tuple[int, ...], expiries: tuple[int, ...], tmp_path: Path
) -> None:
    refused_ms = 0 if release in ("3.6", "3.7", "4.3") else -1
    configs = dict(CONFIGS)
    if release == "2.0":
        configs["delegation.token.master.key"] = configs.pop("delegation.token.secret.key")
    async with running(tmp_path, release=release, overrides=configs) as broker:
        ann, cat = await logged_in(broker), await logged_in(broker, "cat")
        made = await create(ann, max_lifetime_ms=5000, version=1)
        broker.clock.advance(5000)
        assert (await renew(ann, made.hmac, version=1))[0] == NONE, "until the very end"
        broker.clock.advance(1)
        for client, code in zip((ann, cat), renewals, strict=True):
            assert await renew(client, made.hmac, version=1) == (code, refused_ms)
        assert await expire(ann, made.hmac, 1, version=1) == (expiries[0], refused_ms)
        assert await expire(cat, made.hmac, version=1) == (expiries[1], refused_ms)
        removal = await expire(ann, made.hmac, version=1)
        assert removal == (expiries[2], broker.clock.now_ms() if expiries[2] == NONE else refused_ms)
        left = (await describe(ann, version=1)).tokens
        assert len(left) == (expiries[2] != NONE)


@each(("release", "expiry_ms"), [("3.2", None), ("3.6", -7), ("3.7", None)])
async def test_response_to_a_removal(release: str, expiry_ms: int | None, tmp_path: Path) -> None:
    """The first KRaft controllers return the requested period as the new expiry."""
    async with running(tmp_path, release=release, overrides=CONFIGS) as broker:
        ann, bob = await logged_in(broker), await logged_in(broker, "bob")
        made = await create(ann, version=2)
        assert (await expire(bob, made.hmac, -7))[0] == MISMATCH
        expected = broker.clock.now_ms() if expiry_ms is None else expiry_ms
        assert await expire(ann, made.hmac, -7) == (0, expected)
        assert len(broker.state.tokens) == 0


async def test_zookeeper_releases_renew_for_any_period(tmp_path: Path) -> None:
    async with running(tmp_path, release="3.2", overrides=CONFIGS) as broker:
        ann, now_ms = await logged_in(broker), broker.clock.now_ms()
        made = await create(ann, version=2)
        for period_ms, granted_ms in ((-1, DAY_MS), (0, 0), (2 * DAY_MS, 2 * DAY_MS), (9 * DAY_MS, 7 * DAY_MS)):
            assert await renew(ann, made.hmac, period_ms) == (0, now_ms + granted_ms)


async def test_expired_tokens_are_removed_at_each_check(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        short = await create(ann, max_lifetime_ms=5000)
        long = await create(ann, max_lifetime_ms=HOUR_MS)
        broker.clock.advance(HOUR_MS - 1)
        assert await described(ann) == [short.token_id, long.token_id]
        broker.clock.advance(1)
        assert await described(ann) == [long.token_id], "its last millisecond is not over"
        broker.clock.advance(HOUR_MS)
        assert await described(ann) == []
        assert await expire(ann, long.hmac) == (NOT_FOUND, 0)
        assert len(broker.state.tokens) == 0


@each("interval_ms", [1, 777, HOUR_MS])
async def test_check_has_the_configured_interval(interval_ms: int, tmp_path: Path) -> None:
    configs = CONFIGS | {"delegation.token.expiry.check.interval.ms": str(interval_ms)}
    async with running(tmp_path, overrides=configs) as broker:
        await create(await logged_in(broker), max_lifetime_ms=1)
        broker.clock.advance(max(1, interval_ms - 1))
        assert len(broker.state.tokens) == 1
        broker.clock.advance(1)
        assert len(broker.state.tokens) == 0


# Access control


def entry(resource: ResourceType, name: str, operation: AclOperation, principal: str) -> Acl:
    return Acl(resource, name, PatternType.LITERAL, principal, "*", operation, PermissionType.ALLOW)


async def test_tokens_for_other_owners_need_create_tokens(tmp_path: Path) -> None:
    """KIP-373. A client may always create tokens for itself."""
    async with running(tmp_path, overrides=CONFIGS | AUTHORIZER) as broker:
        ann = await logged_in(broker)
        assert (await create(ann)).error_code == (await create(ann, owner=ANN)).error_code == NONE
        refused = await create(ann, "Group:x", owner=BOB)
        assert (refused.error_code, refused.principal_name, refused.expiry_timestamp_ms) == (UNAUTHORIZED, "bob", -1)
        assert refused.token_requester_principal_name == "ann"
        wrong = (
            (ResourceType.USER, BOB, AclOperation.DESCRIBE_TOKENS),
            (ResourceType.USER, CAT, AclOperation.CREATE_TOKENS),
        )
        for resource, name, operation in wrong:
            broker.state.acls.add([entry(resource, name, operation, ANN)], 0)
        assert (await create(ann, owner=BOB)).error_code == UNAUTHORIZED
        broker.state.acls.add([entry(ResourceType.USER, BOB, AclOperation.CREATE_TOKENS, ANN)], 0)
        assert (await create(ann, owner=BOB)).error_code == NONE
        assert (await create(ann, "Group:x", owner=BOB)).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_tokens_of_others_are_described_to_those_who_may(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=CONFIGS | AUTHORIZER) as broker:
        ann, bob, cat = [await logged_in(broker, user) for user in ("ann", "bob", "cat")]
        one, two = (await create(ann, BOB)).token_id, (await create(ann)).token_id
        assert await described(ann) == [one, two]
        assert (await described(bob), await described(cat)) == ([one], [])
        broker.state.acls.add([entry(ResourceType.DELEGATION_TOKEN, two, AclOperation.DESCRIBE, CAT)], 0)
        assert await described(cat) == [two]
        assert await described(cat, [BOB]) == []
        broker.state.acls.add([entry(ResourceType.USER, ANN, AclOperation.DESCRIBE_TOKENS, BOB)], 0)
        assert await described(bob) == [one, two]


async def test_releases_without_the_resource_user_look_at_the_token_alone(tmp_path: Path) -> None:
    configs = CONFIGS | {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    async with running(tmp_path, release="3.2", overrides=configs) as broker:
        ann, bob = await logged_in(broker), await logged_in(broker, "bob")
        made = await create(ann, version=2)
        assert len((await describe(bob, version=2)).tokens) == 1
        acl = entry(ResourceType.DELEGATION_TOKEN, made.token_id, AclOperation.DESCRIBE, CAT)
        broker.state.acls.add([acl], 0)
        assert (await describe(bob, version=2)).tokens == []


# Storage


async def test_tokens_survive_a_restart_and_a_changed_key_ends_their_secrets(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, overrides=CONFIGS, clock=clock) as broker:
        ann = await logged_in(broker)
        kept, gone = await create(ann, BOB), await create(ann)
        await expire(ann, gone.hmac)
        clock.advance(HOUR_MS)
        _, expiry_ms = await renew(ann, kept.hmac)
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or (kept.hmac not in path.read_bytes() and KEY.encode() not in path.read_bytes()), path
    async with running(tmp_path, overrides=CONFIGS, clock=clock) as broker:
        ann = await logged_in(broker)
        (token,) = (await describe(ann)).tokens
        assert (token.token_id, token.hmac, token.expiry_timestamp) == (kept.token_id, kept.hmac, expiry_ms)
        assert [one.principal_name for one in token.renewers] == ["bob"]
        assert await renew(ann, gone.hmac) == (NOT_FOUND, 0)
    async with running(tmp_path, overrides=CONFIGS | {"delegation.token.secret.key": "other"}, clock=clock) as broker:
        ann = await logged_in(broker)
        assert await renew(ann, kept.hmac) == (NOT_FOUND, 0)
        (token,) = (await describe(ann)).tokens
        assert token.token_id == kept.token_id and token.hmac != kept.hmac
    async with running(tmp_path, overrides=SECURED, clock=clock):
        pass
    async with running(tmp_path, overrides=CONFIGS, clock=clock) as broker:
        assert await described(await logged_in(broker)) == [kept.token_id]
        clock.advance(2 * DAY_MS)
    async with running(tmp_path, overrides=CONFIGS, clock=clock) as broker:
        assert len(broker.state.tokens) == 0


async def test_tokens_of_a_kafka_directory_are_taken_over(tmp_path: Path) -> None:
    now_ms = ManualClock().now_ms()
    kept, gone = (
        DelegationTokenRecord(
            owner=ANN, requester=BOB, renewers=[CAT], issue_timestamp=now_ms - 5, max_timestamp=now_ms + DAY_MS,
            expiration_timestamp=now_ms + HOUR_MS, token_id=token_id,
        )
        for token_id in ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg")
    )  # fmt: skip
    removal = RemoveDelegationTokenRecord(token_id=gone.token_id)
    folder = kraft(tmp_path / "data", metadata_batch(40, *values_of(kept, gone, removal)), snapshot=False)
    for _ in range(2):
        async with running(folder, overrides=CONFIGS) as broker:
            ann = await logged_in(broker)
            (token,) = (await describe(ann)).tokens
            assert (token.token_id, token.token_requester_principal_name) == (kept.token_id, "bob")
            assert (token.expiry_timestamp, token.max_timestamp) == (now_ms + HOUR_MS, now_ms + DAY_MS)
            assert token.hmac == hmac.digest(KEY.encode(), kept.token_id.encode(), "sha512")


async def test_change_that_cannot_be_stored_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, overrides=CONFIGS) as broker:
        ann = await logged_in(broker)
        made = await create(ann)

        def fail(records: Any, now_ms: int) -> None:
            raise StorageError("full")

        with monkeypatch.context() as patched:
            patched.setattr(broker.state.metadata_log, "append", fail)
            refused = await create(ann)
            assert (refused.error_code, refused.hmac) == (ErrorCode.KAFKA_STORAGE_ERROR, b"")
            for call in (renew, expire):
                assert (await call(ann, made.hmac))[0] == ErrorCode.KAFKA_STORAGE_ERROR
            broker.clock.advance(2 * DAY_MS)
            assert await described(ann) == [made.token_id]
        broker.clock.advance(HOUR_MS)
        assert await described(ann) == []


class Log:
    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def append(self, records: Sequence[Any], now_ms: int) -> None:
        self.batches.append(list(records))


def tokens_of(log: Log, rules: Rules = "removable") -> DelegationTokens:
    ids = iter(range(1 << 30))
    return DelegationTokens(log, TokenSettings(b"k", 1000, 100), lambda: next(ids).to_bytes(16, "big"), rules=rules)  # type: ignore[arg-type]


def test_many_expired_tokens_are_removed_in_several_batches() -> None:
    log = Log()
    tokens = tokens_of(log)
    for _ in range(2 * REMOVED_AT_ONCE + 1):
        tokens.create(ANN, ANN, [], 5, 0)
    assert tokens.next_expiry_ms() == 6 and not tokens.remove_expired(5)
    del log.batches[:]
    assert [tokens.remove_expired(6) for _ in range(4)] == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 1, 0]
    assert [len(batch) for batch in log.batches] == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 1]
    assert len(tokens) == 0 and tokens.next_expiry_ms() is None


def test_keys_of_a_login_are_derived_once_and_end_with_the_token() -> None:
    tokens = tokens_of(Log())
    one, other = (tokens.create(ANN, ANN, [], -1, 0) for _ in range(2))
    made = tokens.credential(one, Mechanism.SCRAM_SHA_256)
    password = base64.b64encode(tokens.secret_of(one.token_id))
    salted = hashlib.pbkdf2_hmac("sha256", password, made.salt, made.iterations)
    assert made == Credential.made(Mechanism.SCRAM_SHA_256, made.salt, salted, 4096)
    tokens.renew(ANN, tokens.secret_of(one.token_id), 7, 0)
    assert tokens.credential(one, Mechanism.SCRAM_SHA_256) is made
    assert tokens.credential(other, Mechanism.SCRAM_SHA_256) != made
    assert len(tokens.credential(one, Mechanism.SCRAM_SHA_512).stored_key) == 64
    tokens.expire(ANN, tokens.secret_of(one.token_id), -1, 0)
    assert tokens.credential(one, Mechanism.SCRAM_SHA_256).salt != made.salt


def test_too_many_renewers_are_refused() -> None:
    tokens = tokens_of(Log())
    with pytest.raises(Refused, match="RECORD_LIST_TOO_LARGE"):
        tokens.create(ANN, ANN, ["User:" + "x" * 32_000] * (RECORD_BYTES_MAX // 32_000 + 1), -1, 0)
    assert len(tokens) == 0


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["create", "renew", "expire", "sweep"]),
        st.sampled_from([ANN, BOB, CAT]),
        st.integers(0, 3),
        st.sampled_from([-1, 0, 1, 50, 100, 999, 5000, INT64_MAX]),
        st.integers(0, 60),
    ),
    max_size=20,
)


@given(CALLS, st.sampled_from(get_args(Rules)))
def test_random_calls_keep_the_log_and_the_rules(calls: list[Any], rules: Rules) -> None:
    """Tokens are those of a replay of the log; no expiry is after the end of life; refusals write nothing."""
    log, now_ms = Log(), 0
    tokens = tokens_of(log, rules)
    secrets: list[bytes] = []
    for kind, principal, which, period_ms, later_ms in calls:
        now_ms += later_ms
        written = len(log.batches)
        if kind == "create":
            made = tokens.create(principal, ANN, [BOB], period_ms, now_ms)
            secrets.append(tokens.secret_of(made.token_id))
            assert made.max_ms <= now_ms + 1000 and made.expiry_ms <= min(made.max_ms, now_ms + 100)
        elif kind == "sweep":
            tokens.remove_expired(now_ms)
            assert not any(token.is_expired(now_ms) for token in tokens.all)
        else:
            secret = secrets[which] if which < len(secrets) else b"none"
            try:
                (tokens.renew if kind == "renew" else tokens.expire)(principal, secret, period_ms, now_ms)
            except Refused:
                assert len(log.batches) == written
        for token in tokens.all:
            assert token.expiry_ms <= token.max_ms
    replayed = tokens_of(Log(), rules)
    for batch in log.batches:
        for record in batch:
            replayed.replay(record)
    assert replayed.all == tokens.all


# Settings


@each(
    ("release", "configs", "key"),
    [
        ("1.1", {"delegation.token.master.key": "m"}, b"m"),
        ("2.8", {"delegation.token.master.key": "m", "delegation.token.secret.key": "s"}, b"s"),
        ("2.8", {"delegation.token.master.key": "m"}, b"m"),
        ("3.9", {"delegation.token.master.key": "m"}, b"m"),
        ("4.3", {"delegation.token.secret.key": "s"}, b"s"),
        ("4.3", {"delegation.token.secret.key": ""}, None),
        ("1.0", {}, None),
    ],
)
def test_key_has_the_name_of_its_release(release: str, configs: dict[str, str], key: bytes | None) -> None:
    found = token_settings(Config.load(flags=configs, profile=profile(release)))
    assert (None if found is None else found.secret_key) == key


def test_key_is_in_no_text() -> None:
    config = Config.load(overrides={"delegation.token.secret.key": "hidden"})
    assert "hidden" not in repr(token_settings(config)) + repr(config)
    assert hashlib.sha256(b"hidden").hexdigest() not in repr(token_settings(config))


def test_clock_of_a_test_expires_tokens() -> None:
    """A leap over many checks: also the first one after the expiry has been."""
    with Embedded(configs=CONFIGS) as broker:

        async def ids() -> list[str]:
            login: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "ann", "sasl_password": "p"}
            async with Admin(broker.bootstraps["SECURED"], security_protocol="SASL_PLAINTEXT", **login) as admin:
                if not await admin.describe_delegation_tokens():
                    await admin.create_delegation_token()
                return [token.token_id for token in await admin.describe_delegation_tokens()]

        (first,) = asyncio.run(ids())
        broker.clock.advance(DAY_MS - HOUR_MS)
        assert asyncio.run(ids()) == [first]
        broker.clock.advance(3 * HOUR_MS)
        assert asyncio.run(ids()) != [first]
