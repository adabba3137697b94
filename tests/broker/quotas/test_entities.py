"""Quota entities: altering, describing, precedence, and persistence over restarts and snapshots."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.admin_api import snapshots
from ottla.broker.quotas.limits import ABSENT, AddressLimits, ClientLimits, Limit
from ottla.broker.quotas.stored import CHANGES_MAX, literal_address
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_records.metadata_records import ClientQuotaRecord
from ottla.tools.disk.dump import dump
from ottla_testing.broker.adopting import kraft, metadata_batch, values_of
from ottla_testing.broker.harness import Broker, running
from ottla_testing.broker.quota_cases import ANY, DEFAULT, EXACT, altering, described, describing, entry, set_quotas
from ottla_testing.patience import PATIENCE_S

BOTH: dict[str, str | None] = {"user": "ann", "client-id": "app"}


# --- precedence

USERS, CLIENT_IDS = ("ann", None, ABSENT), ("app", None, ABSENT)
LEVELS = [who for who in itertools.product(USERS, CLIENT_IDS) if who != (ABSENT, ABSENT)]
# Most specific first, with the clients that share it: by user, by client id or by neither.
PRECEDENCE: list[tuple[tuple[str | None, str | None], tuple[str, str]]] = [
    (("ann", "app"), ("ann", "app")),
    (("ann", None), ("ann", "app")),
    (("ann", ABSENT), ("ann", ABSENT)),
    ((None, "app"), ("ann", "app")),
    ((None, None), ("ann", "app")),
    ((None, ABSENT), ("ann", ABSENT)),
    ((ABSENT, "app"), (ABSENT, "app")),
    ((ABSENT, None), (ABSENT, "app")),
]


@given(st.sets(st.sampled_from(LEVELS)))
def test_most_specific_quota_applies(given: set[tuple[str | None, str | None]]) -> None:
    rates = {who: float(number) for number, who in enumerate(sorted(given, key=str), 1)}
    expected = next((Limit(bucket, rates[who]) for who, bucket in PRECEDENCE if who in given), None)
    assert ClientLimits(rates).find("ann", "app") == expected
    by_user = [(who, bucket) for who, bucket in PRECEDENCE if who[1] == ABSENT]
    expected = next((Limit(bucket, rates[who]) for who, bucket in by_user if who in given), None)
    assert ClientLimits(rates).find("ann", "") == expected, "without a client id"


def test_precedence_has_every_entity_kind() -> None:
    assert sorted(map(str, (who for who, _ in PRECEDENCE))) == sorted(map(str, LEVELS))


def test_address_has_its_own_limit_or_the_default() -> None:
    limits = AddressLimits({"10.0.0.1": 5.0, None: 2.5})
    assert limits.find("10.0.0.1") == Limit(("10.0.0.1", ""), 5.0)
    assert limits.find("10.0.0.2") == Limit(("10.0.0.2", ""), 2.0)  # whole connections, as in Kafka
    assert AddressLimits({"10.0.0.1": 5.0}).find("::1") is None


def test_addresses_are_canonicalized() -> None:
    assert literal_address("0:0:0:0:0:0:0:1") == "::1"
    assert literal_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert literal_address("fe80::1%eth0") == literal_address("fe80:0:0::1") == "fe80::1"
    assert AddressLimits({"fe80::1": 5.0}).find("fe80::1%eth0") == Limit(("fe80::1", ""), 5.0)
    assert literal_address("10.0.0.256") is literal_address("10.0.0.1%eth0") is None and literal_address("host") is None


# --- altering

LONG = 2.0**63
REFUSED: list[tuple[dict[str, str | None], dict[str, float | None], str]] = [
    ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
    ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
    ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
    (
        {"user": "a", "ip": "10.0.0.1"},
        {"connection_creation_rate": 1.0},
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    ({"ip": "10.0.0.1/8"}, {"connection_creation_rate": 1.0}, "10.0.0.1/8 is not a valid IP or resolvable host."),
    ({"user": "a"}, {"producer_rate": 1.0}, "Invalid configuration key producer_rate"),
    ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key connection_creation_rate"),
    ({"ip": None}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
    ({"user": "a"}, {"producer_byte_rate": float("inf")}, "Quota producer_byte_rate must be a finite number"),
    ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
    ({"user": "a"}, {"request_percentage": -1.0}, "Quota request_percentage must be greater than 0"),
    ({"user": "a"}, {"consumer_byte_rate": 1.5}, "consumer_byte_rate cannot be a fractional value."),
    ({"user": "a"}, {"producer_byte_rate": 2 * LONG}, "Proposed value for producer_byte_rate is too large for a LONG."),
    (
        {"ip": None},
        {"connection_creation_rate": 2.0**31},
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    # All or nothing.
    ({"user": "a"}, {"producer_byte_rate": 1.0, "x": 1.0}, "Invalid configuration key x"),
]


@pytest.mark.parametrize(("entity", "quotas", "message"), REFUSED)
async def test_refused_alteration_changes_nothing(
    entity: dict[str, str | None], quotas: dict[str, float | None], message: str, tmp_path: Path
) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        fine = entry({"client-id": "fine"}, {"request_percentage": 1.5})
        response = await client.call(altering(entry(entity, quotas), fine), 1)
        assert [(one.error_code, one.error_message) for one in response.entries] == [(42, message), (0, None)]
        assert {part.entity_type: part.entity_name for part in response.entries[0].entity} == entity
        assert described(await client.call(describing(), 1)) == [({"client-id": "fine"}, {"request_percentage": 1.5})]


async def test_duplicate_entities_and_keys(tmp_path: Path) -> None:
    """As in Kafka: the first occurrence of an entity applies, though the result is that of the second; a duplicate key
    refuses all.
    """
    async with running(tmp_path) as broker:
        client = await broker.client()
        ann = {"user": "ann", "client-id": None}
        requested = altering(entry(ann, {"producer_byte_rate": 1.0}), entry(ann, {"producer_byte_rate": 2.0}))
        response = await client.call(requested, 1)
        text = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=null, user=ann})"
        assert [(one.error_code, one.error_message) for one in response.entries] == [(42, text)]
        assert described(await client.call(describing(), 1)) == [(ann, {"producer_byte_rate": 1.0})]
        twice = entry({"user": "bob"}, {"producer_byte_rate": 1.0})
        twice.ops *= 2
        response = await client.call(altering(twice), 1)
        text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=bob})"
        assert [(one.error_code, one.error_message) for one in response.entries] == [(42, text)]
        assert len(described(await client.call(describing(), 1))) == 1


async def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        requested = entry(BOTH, {"producer_byte_rate": 1.0})
        response = await client.call(altering(requested, validate_only=True), 1)
        assert [one.error_code for one in response.entries] == [0]
        assert described(await client.call(describing(), 1)) == []
        assert broker.state.quotas.throttle is None


async def test_quotas_are_removed_one_by_one(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await set_quotas(client, BOTH, producer_byte_rate=1.0, request_percentage=2.0)
        await set_quotas(client, BOTH, producer_byte_rate=None, no_such_key=None)
        assert described(await client.call(describing(), 1)) == [(BOTH, {"request_percentage": 2.0})]
        end = broker.state.metadata_log._log.log_end_offset
        await set_quotas(client, BOTH, request_percentage=2.0)  # exists already
        assert broker.state.metadata_log._log.log_end_offset == end
        await set_quotas(client, BOTH, request_percentage=None)
        assert described(await client.call(describing(), 1)) == []
        assert broker.state.quotas.throttle is None


async def test_host_name_is_resolved_without_blocking_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"one": "10.0.0.1"}
    monkeypatch.setattr("ottla.broker.quotas.client_quotas.look_up", names.get)
    async with running(tmp_path) as broker:
        client = await broker.client()
        requested = [entry({"ip": name}, {"connection_creation_rate": 3.0}) for name in ("one", "two")]
        response = await client.call(altering(*requested), 1)
        assert [one.error_message for one in response.entries] == [None, "two is not a valid IP or resolvable host."]
        assert broker.state.quotas.throttle is not None
        assert broker.state.quotas.throttle.addresses.find("10.0.0.1") == Limit(("10.0.0.1", ""), 3.0)
    names["one"] = "10.0.0.2"
    async with running(tmp_path) as broker:
        found: Limit | None = None
        async with asyncio.timeout(PATIENCE_S):  # resolved in a thread
            while found is None:
                await asyncio.sleep(0.01)
                assert broker.state.quotas.throttle is not None
                found = broker.state.quotas.throttle.addresses.find("10.0.0.2")
        assert found == Limit(("10.0.0.2", ""), 3.0)


WITH_ZOOKEEPER: list[tuple[dict[str, str | None], dict[str, float | None], str | None]] = [
    ({"user": "a"}, {"producer_byte_rate": 1.5}, "Configuration producer_byte_rate must be a LONG value"),
    ({"user": "a"}, {"producer_byte_rate": 0.0}, None),  # is accepted, but limits nothing
    (
        {"user": "a", "ip": None},
        {"connection_creation_rate": 1.0},
        "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
    ),
    ({"user": "a"}, {"x": 1.0}, "Invalid configuration key x"),
]


@pytest.mark.parametrize(("entity", "quotas", "message"), WITH_ZOOKEEPER)
async def test_alteration_checks_of_zookeeper_releases(
    entity: dict[str, str | None], quotas: dict[str, float | None], message: str | None, tmp_path: Path
) -> None:
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        response = await client.call(altering(entry(entity, quotas)), 1)
        assert [(one.error_code, one.error_message) for one in response.entries] == [(42 if message else 0, message)]


async def test_duplicate_entity_is_accepted_in_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        first = entry(BOTH, {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0})
        response = await client.call(altering(first, entry(BOTH, {"producer_byte_rate": None})), 1)
        assert [(one.error_code, one.error_message) for one in response.entries] == [(0, None)]
        assert described(await client.call(describing(), 1)) == [(BOTH, {"consumer_byte_rate": 2.0})]


async def test_first_refused_type_follows_javas_hash_order(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        for entity, named in (({"group": None, "": None}, ""), ({"topic": "t", "group": "g", "user": ""}, "topic")):
            response = await client.call(altering(entry(entity, {})), 1)
            assert [one.error_message for one in response.entries] == [f"Unhandled client quota entity type: {named}"]


# --- describing

ENTITIES: list[dict[str, str | None]] = [
    {"user": "ann"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None, "user": "ann"},
    {"client-id": "app", "user": "ann"},
    {"ip": "10.0.0.1"},
    {"ip": None},
]
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool, list[int]]] = [
    ([], False, [0, 1, 2, 3, 4, 5, 6]),
    ([], True, []),
    ([("user", EXACT, "ann")], False, [0, 3, 4]),
    ([("user", EXACT, "ann")], True, [0]),
    ([("user", DEFAULT, None)], False, [1]),
    ([("user", ANY, None)], False, [0, 1, 3, 4]),
    ([("user", ANY, None)], True, [0, 1]),
    ([("user", ANY, None), ("client-id", DEFAULT, None)], True, [3]),
    ([("client-id", EXACT, "app")], False, [2, 4]),
    ([("ip", ANY, None)], False, [5, 6]),
    ([("ip", EXACT, "10.0.0.1")], True, [5]),
    ([("user", EXACT, "nobody")], False, []),
]


@pytest.fixture
async def described_broker(tmp_path: Path) -> Any:
    async with running(tmp_path) as broker:
        client = await broker.client()
        for entity in ENTITIES:
            key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
            await set_quotas(client, entity, **{key: 7.0})
        yield broker


async def test_filters(described_broker: Broker) -> None:
    client = await described_broker.client()
    for components, strict, expected in FILTERS:
        for version in (0, 1):
            found = described(await client.call(describing(*components, strict=strict), version))
            assert [entity for entity, _ in found] == [ENTITIES[number] for number in expected], (components, strict)


BAD_FILTERS: list[tuple[list[tuple[str, int, str | None]], int, str]] = [
    ([("", ANY, None)], 42, "Invalid empty entity type."),
    ([("topic", ANY, None)], 35, "Unsupported entity type topic"),
    ([("user", ANY, None)] * 2, 42, "Entity type user cannot appear more than once in the filter."),
    ([("user", EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
    ([("user", DEFAULT, "a")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
    ([("user", ANY, "a")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
    ([("user", 3, None)], 42, "Unknown match type 3"),
    (
        [("ip", ANY, None), ("user", ANY, None)],
        42,
        "Invalid entity filter component combination. IP filter component should not be used with "
        "user or clientId filter component.",
    ),
]


async def test_invalid_filters(described_broker: Broker) -> None:
    client = await described_broker.client()
    for components, code, message in BAD_FILTERS:
        response = await client.call(describing(*components), 1)
        assert (response.error_code, response.error_message, response.entries) == (code, message, None)


BAD_FILTERS_WITH_ZOOKEEPER: list[tuple[list[tuple[str, int, str | None]], int, str | None]] = [
    ([("", ANY, None)], 42, "Unexpected empty filter component entity type"),
    ([("topic", ANY, None)], 35, "Custom entity type 'topic' not supported"),
    ([("client-id", ANY, None)] * 2, 42, "Duplicate client filter component entity type"),
    ([("", ANY, None), ("user", 3, None)], -1, None),
    (
        [("ip", ANY, None), ("user", ANY, None)],
        42,
        "Invalid entity filter component combination, IP filter component should not be used with "
        "user or clientId filter component.",
    ),
]


async def test_invalid_filters_in_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        for components, code, message in BAD_FILTERS_WITH_ZOOKEEPER:
            response = await client.call(describing(*components), 1)
            assert (response.error_code, response.error_message, response.entries) == (code, message, None)
        await set_quotas(client, {"user": None}, producer_byte_rate=1.0)
        found = described(await client.call(describing(("user", DEFAULT, "of no meaning")), 1))
        assert found == [({"user": None}, {"producer_byte_rate": 1.0})]


async def test_quotas_have_kafkas_order_of_keys(tmp_path: Path) -> None:
    keys = ["request_percentage", "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"]
    async with running(tmp_path) as broker:
        client = await broker.client()
        for number, key in enumerate(reversed(keys), 1):
            await set_quotas(client, {"user": "ann"}, **{key: float(number)})
        ((_, quotas),) = described(await client.call(describing(), 1))
        assert list(quotas) == keys


# --- persistence


async def test_quotas_survive_a_restart_and_are_in_the_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await set_quotas(client, BOTH, producer_byte_rate=1024.0, consumer_byte_rate=5.0)
        await set_quotas(client, BOTH, consumer_byte_rate=None)
    async with running(tmp_path) as broker:
        assert described(await (await broker.client()).call(describing(), 1)) == [(BOTH, {"producer_byte_rate": 1024})]
        throttle = broker.state.quotas.throttle
        assert throttle is not None and throttle.produce.limits.find("ann", "app") == Limit(("ann", "app"), 1024.0)
    for path in (tmp_path / "__cluster_metadata-0").glob("*.log"):
        assert dump([str(path), "--records"]) == 0
    out = capsys.readouterr().out
    assert "ClientQuotaRecord v0" in out and "producer_byte_rate" in out


async def test_snapshot_restores_quotas(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        await set_quotas(client, BOTH, producer_byte_rate=1.0)
        kept = await snapshots.take(broker.running)
        await set_quotas(client, BOTH, producer_byte_rate=None)
        await set_quotas(client, {"ip": None}, connection_creation_rate=100.0)
        await snapshots.restore(broker.running, kept)
        broker.state = broker.running.state
        assert described(await (await broker.client()).call(describing(), 1)) == [(BOTH, {"producer_byte_rate": 1.0})]


async def test_quotas_of_a_kraft_broker_are_taken_over(tmp_path: Path) -> None:
    part = ClientQuotaRecord.EntityData
    pair = [part(entity_type="user", entity_name="ann"), part(entity_type="client-id", entity_name=None)]
    changes = [
        ClientQuotaRecord(entity=entity, key=key, value=value, remove=value == 0)
        for entity, key, value in (
            (pair, "producer_byte_rate", 5.0),
            (pair, "consumer_byte_rate", 6.0),
            (pair[::-1], "producer_byte_rate", 7.0),
            (pair, "consumer_byte_rate", 0.0),
        )
    ]
    folder = kraft(tmp_path / "data", metadata_batch(100, *values_of(*changes)))
    for _ in range(2):
        async with running(folder) as broker:
            found = described(await (await broker.client()).call(describing(), 1))
            assert found == [({"client-id": None, "user": "ann"}, {"producer_byte_rate": 7.0})]


async def test_too_many_changes_in_a_request_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like KRaft controllers, which accept 10,000."""
    assert CHANGES_MAX == 10_000
    monkeypatch.setattr("ottla.broker.quotas.stored.CHANGES_MAX", 100)
    requested = [entry({"user": f"u{number}"}, {"producer_byte_rate": 1.0}) for number in range(100 + 1)]
    async with running(tmp_path) as broker:
        client = await broker.client()
        response = await client.call(altering(*requested), 1)
        assert {one.error_code for one in response.entries} == {ErrorCode.POLICY_VIOLATION}
        assert {one.error_message for one in response.entries} == {
            "Unable to perform excessively large batch operation."
        }
        assert len(response.entries) == len(requested)
        assert described(await client.call(describing(), 1)) == []
        response = await client.call(altering(*requested[1:]), 1)
        assert {one.error_code for one in response.entries} == {0}
        assert len(described(await client.call(describing(), 1))) == 100


async def test_disk_failure_is_reported_for_each_entity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.storage.errors import StorageError

    def fail(records: Any, now_ms: int) -> None:
        raise StorageError("no")

    async with running(tmp_path) as broker:
        client = await broker.client()
        monkeypatch.setattr(broker.state.metadata_log, "write", fail)
        response = await client.call(altering(entry(BOTH, {"producer_byte_rate": 1.0})), 1)
        assert [one.error_code for one in response.entries] == [56]
        assert broker.state.quotas.throttle is None
