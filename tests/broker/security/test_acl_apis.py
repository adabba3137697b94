"""DescribeAcls, CreateAcls and DeleteAcls over the wire, with the results of Apache Kafka for the same calls: 4.3.1 and
3.9.1 with StandardAuthorizer, and 2.8.2 with AclAuthorizer.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.security.acls import Acl, AclFilter
from ottla.protocol.acls import AclOperation
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla_testing.broker.delegating import SECURED, logged_in
from ottla_testing.broker.dumping import runner
from ottla_testing.broker.harness import COMMAND, Broker, Client, Closed, fetch, only, produce, records, running
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ZOOKEEPER = "kafka.security.authorizer.AclAuthorizer"
OK, FAILED = (0, ""), (-1, None)
ONLY_CLUSTER = (42, "The only valid name for the CLUSTER resource is kafka-cluster")
EMPTY = (42, "Invalid empty resource name")
NOT_CREATED = (42, "Failed to create ACL")
T = Acl(2, "t", 3, "User:a", "*", 3, 3)


def unknown(part: str) -> tuple[int, str]:
    return 42, f"Invalid {part} UNKNOWN"


def no_colon(principal: str) -> tuple[int, str]:
    reason = "no colon is present separating the principal type from the principal name"
    return 42, f"Could not parse principal from `{principal}` ({reason})"


@contextlib.asynccontextmanager
async def served(
    folder: Path, release: str = "4.3", super_users: str = "User:ANONYMOUS", brokers: int = 1, **more: str
) -> AsyncIterator[Broker]:
    authorizer = ZOOKEEPER if release == "2.8" else STANDARD
    overrides = {"authorizer.class.name": authorizer, "super.users": super_users, **more}
    async with running(folder / "data", overrides=overrides, release=release, brokers=brokers) as broker:
        yield broker


async def create(client: Client, *acls: Acl, version: int = 2) -> list[tuple[int, str | None]]:
    requested = [
        CreateAclsRequest.AclCreation(
            resource_pattern_type=acl.pattern_type, **{k: v for k, v in acl._asdict().items() if k != "pattern_type"}
        )
        for acl in acls
    ]
    response = await client.call(CreateAclsRequest(creations=requested), version)
    return [(result.error_code, result.error_message) for result in response.results]


def parts(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


async def describe(client: Client, version: int = 2, **wanted: Any) -> set[Acl]:
    response = await client.call(DescribeAclsRequest(**parts(AclFilter(**wanted))), version)
    assert (response.error_code, response.error_message) == OK
    patterns = [(r.resource_type, r.resource_name, r.pattern_type) for r in response.resources]
    assert len(set(patterns)) == len(patterns) and all(r.acls for r in response.resources)
    found = [
        Acl(*pattern, acl.principal, acl.host, acl.operation, acl.permission_type)
        for pattern, resource in zip(patterns, response.resources, strict=True)
        for acl in resource.acls
    ]
    assert len(set(found)) == len(found)
    return set(found)


async def delete(client: Client, *wanted: AclFilter, version: int = 2) -> list[tuple[int, str | None, set[Acl]]]:
    requested = [DeleteAclsRequest.DeleteAclsFilter(**parts(one)) for one in wanted]
    response = await client.call(DeleteAclsRequest(filters=requested), version)
    results = []
    for result in response.filter_results:
        assert all((acl.error_code, acl.error_message) == (0, None) for acl in result.matching_acls)
        found = {Acl(*(getattr(acl, name) for name in Acl._fields)) for acl in result.matching_acls}
        assert len(found) == len(result.matching_acls)
        results.append((result.error_code, result.error_message, found))
    return results


# Result of each entry in 4.3.1, and in 2.8.2 if that differs.
JUDGED: list[tuple[Acl, Any, Any]] = [
    (T, OK, OK),
    *[(T._replace(resource_type=n), unknown("resourceType"), NOT_CREATED) for n in (8, 77, -1)],
    *[(T._replace(pattern_type=n), unknown("patternType"), NOT_CREATED) for n in (5, 77, -1)],
    *[(T._replace(operation=n), unknown("operation"), NOT_CREATED) for n in (16, 77, -1)],
    *[(T._replace(permission_type=n), unknown("permissionType"), NOT_CREATED) for n in (4, 77, -1)],
    *[(T._replace(operation=n), OK, OK) for n in range(2, 13)],
    *[(T._replace(operation=n), OK, NOT_CREATED) for n in (13, 14, 15)],
    (T._replace(resource_type=7, resource_name="User:x", operation=13), OK, NOT_CREATED),
    *[(T._replace(resource_type=n), OK, OK) for n in (3, 5, 6)],
    (T._replace(resource_type=4, resource_name="kafka-cluster"), OK, OK),
    (T._replace(resource_type=4, resource_name="kafka-cluster", pattern_type=4), OK, OK),
    *[(T._replace(resource_type=4, resource_name=name), ONLY_CLUSTER, ONLY_CLUSTER) for name in ("other", "", "*")],
    (T._replace(resource_type=4, resource_name="kafka", pattern_type=4), ONLY_CLUSTER, ONLY_CLUSTER),
    (T._replace(resource_name=""), EMPTY, EMPTY),
    (T._replace(resource_type=3, resource_name="", pattern_type=4), EMPTY, EMPTY),
    *[(T._replace(resource_name="p", principal=p), no_colon(p), FAILED) for p in ("nocolon", "", "*")],
    *[
        (T._replace(principal=p), OK, OK)
        for p in (":", "User:", "User:*", "Group:x", "user:a", ":x", "User:a:b", " User:a")
    ],
    *[(T._replace(host=h), OK, OK) for h in ("localhost", "127.0.0.1", "10.0.0.0/8", "::1", "nonsense host")],
    (T._replace(resource_name="a/b"), OK, FAILED),
    (T._replace(resource_name=".."), OK, FAILED),
    *[(T._replace(resource_name=name), OK, OK) for name in ("ü", "x" * 300, "*")],
]


@pytest.mark.parametrize(("release", "column"), [("4.3", 1), ("2.8", 2), ("ottla", 1)])
async def test_create_acls_validates_each_entry_like_kafka(release: str, column: int, tmp_path: Path) -> None:
    async with served(tmp_path, release) as broker:
        client = await broker.client()
        for row in JUDGED:
            assert await create(client, row[0]) == [row[column]], row
        expected = {row[0] for row in JUDGED if row[column] == OK}
        assert await describe(client) == expected
        # All in one request: the same as individually, except that ZooKeeper's entries of one pattern fail together.
        assert await create(client, *(row[0] for row in JUDGED)) == [row[column] for row in JUDGED]
        assert await describe(client) == expected


@pytest.mark.parametrize(("release", "newest"), [("3.9", 14), ("4.0", 14), ("4.1", 15), ("3.2", 12)])
async def test_newest_acl_operation_depends_on_the_release(release: str, newest: int, tmp_path: Path) -> None:
    async with served(tmp_path, release) as broker:
        client = await broker.client()
        results = await create(client, *(T._replace(operation=n) for n in (12, 13, 14, 15)))
        assert [result == OK for result in results] == [n <= newest for n in (12, 13, 14, 15)]
        (user,) = await create(client, T._replace(resource_type=7))
        assert (user == OK) == (newest > 12)


@pytest.mark.parametrize("release", ["4.3", "2.8"])
async def test_create_acls_with_filter_values_is_refused(release: str, tmp_path: Path) -> None:
    """Kafka has no value for such an entry: the first one fails the whole request."""
    async with served(tmp_path, release) as broker:
        client = await broker.client()
        for wrong in (
            *({"resource_type": 1}, {"operation": 1}, {"permission_type": 1}),
            *({"pattern_type": 1}, {"pattern_type": 2}),
        ):
            assert await create(client, T, T._replace(**wrong), T._replace(resource_name="")) == [FAILED] * 3
        assert await describe(client) == set()


@pytest.mark.parametrize("release", ["4.3", "2.8", "ottla"])
async def test_unknown_enum_value_closes_the_connection(release: str, tmp_path: Path) -> None:
    async with served(tmp_path, release) as broker:
        for part in ("resource_type", "pattern_type", "operation", "permission_type"):
            for call in (
                lambda client, part=part: create(client, T, T._replace(**{part: 0})),
                lambda client, part=part: describe(client, **{part: 0}),
                lambda client, part=part: delete(client, AclFilter(), AclFilter()._replace(**{part: 0})),
            ):
                client = await broker.client()
                with pytest.raises(Closed):
                    await call(client)
        assert not broker.state.acls.find(AclFilter())


async def test_entries_of_one_pattern_fail_together_in_zookeeper_releases(tmp_path: Path) -> None:
    async with served(tmp_path, "2.8") as broker:
        client = await broker.client()
        results = await create(
            client, T, T._replace(principal="x"), T._replace(resource_name="u"), T._replace(operation=77)
        )
        assert results == [FAILED, FAILED, OK, NOT_CREATED]
        assert await describe(client) == {T._replace(resource_name="u")}


async def test_create_acls_of_an_existing_entry_succeeds(tmp_path: Path) -> None:
    async with served(tmp_path) as broker:
        client = await broker.client()
        assert await create(client, T, T) == [OK, OK]
        end = broker.state.metadata_log._log.log_end_offset
        assert await create(client, T) == [OK] and await create(client) == []
        assert broker.state.metadata_log._log.log_end_offset == end and await describe(client) == {T}


PATTERNS = {
    name: T._replace(resource_name=text, pattern_type=kind)
    for name, text, kind in (
        *(("t", "t", 3), ("u", "u", 3), ("t...", "t", 4), ("top...", "top", 4)),
        *(("*", "*", 3), ("*...", "*", 4)),
    )
}


@each(
    ("name", "pattern_type", "expected"),
    [
        *[("t", 1, "t t..."), ("t", 2, "t t... *"), ("t", 3, "t"), ("t", 4, "t..."), ("t", 5, "")],
        *[("topic", 1, ""), ("topic", 2, "t... top... *"), ("topic", 3, ""), ("topic", 4, ""), ("topic", 5, "")],
        *[("*", 1, "* *..."), ("*", 2, "* *..."), ("*", 3, "*"), ("*", 4, "*..."), ("*", 5, "")],
        *[(None, 1, "t u t... top... * *..."), (None, 2, "t u t... top... * *...")],
        *[(None, 3, "t u *"), (None, 4, "t... top... *..."), ("", 1, ""), ("", 2, "*")],
    ],
)
async def test_patterns_of_filters(name: str | None, pattern_type: int, expected: str, tmp_path: Path) -> None:
    async with served(tmp_path) as broker:
        client = await broker.client()
        await create(client, *PATTERNS.values(), T._replace(resource_type=3))
        wanted = {PATTERNS[one] for one in expected.split()}
        requested = AclFilter(2, name, pattern_type)
        assert await describe(client, **requested._asdict()) == wanted
        assert await delete(client, requested) == [
            (42, "Unknown patternFilter.", set()) if pattern_type == 5 else (0, None, wanted)
        ]
        assert await describe(client, resource_type=2) == set(PATTERNS.values()) - wanted


async def test_other_parts_of_filters(tmp_path: Path) -> None:
    async with served(tmp_path) as broker:
        client = await broker.client()
        other = Acl(3, "g", 4, "User:b", "127.0.0.1", 4, 2)
        await create(client, T, other)
        for name, value in other._asdict().items():
            assert await describe(client, **{name: value}) == {other}, name
            assert await describe(client, **{name: getattr(T, name)}) == {T}, name
        for nothing in ({"principal": ""}, {"principal": "a"}, {"host": ""}, {"resource_type": 77}, {"operation": 77}):
            assert await describe(client, 2, **nothing) == set()
        assert await describe(client, permission_type=77) == set()


@pytest.mark.parametrize("release", ["4.3", "2.8"])
async def test_several_filters(release: str, tmp_path: Path) -> None:
    """Each filter lists its matches; with ZooKeeper an entry is listed once, and unknown values match nothing."""
    async with served(tmp_path, release) as broker:
        client = await broker.client()
        write = T._replace(operation=4)
        others = [T._replace(resource_name="u"), T._replace(resource_name="*"), T._replace(resource_name="v")]
        await create(client, T, write, *others)
        reading, both, matching = (
            AclFilter(operation=3, resource_name="t"),
            AclFilter(resource_name="t"),
            AclFilter(2, "u", 2),
        )
        strange = [AclFilter(resource_type=77), AclFilter(operation=77), AclFilter(permission_type=77)]
        found = await delete(client, reading, both, *strange, AclFilter(resource_name="x"), matching, both)
        is_kraft = release == "4.3"
        problems = ["Unknown patternFilter.", "Unknown entryFilter.", "Unknown entryFilter."]
        assert found == [
            (0, None, {T}),
            (0, None, {T, write} if is_kraft else {write}),
            *((42, text, set()) if is_kraft else (0, None, set()) for text in problems),
            (0, None, set()),
            (0, None, set(others[:2])),
            (0, None, {T, write} if is_kraft else set()),
        ]
        assert await describe(client) == {others[2]} and await delete(client) == []


async def test_too_many_acl_changes_in_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as broker:
        client = await broker.client()
        limit = 50
        monkeypatch.setattr("ottla.broker.security.acls.CHANGES_MAX", limit)
        many = [T._replace(resource_name=f"n{number}") for number in range(limit + 1)]
        too_large = (44, "Unable to perform excessively large batch operation.")
        assert await create(client, *many, T._replace(resource_name="")) == [too_large] * len(many) + [EMPTY]
        assert await create(client, *many[:-1]) == [OK] * limit
        assert await create(client, many[-1], T) == [OK, OK]
        text = f"Cannot remove more than {limit} acls in a single delete operation."
        assert (
            await delete(client, AclFilter(resource_name="t"), AclFilter(principal="User:a")) == [(42, text, set())] * 2
        )
        assert len(broker.state.acls.find(AclFilter())) == limit + 2
        monkeypatch.setattr(sys.modules["ottla.broker.handlers.security.acls"], "MATCHES_MAX", 3)
        found = await delete(client, *[AclFilter(resource_name="t")] * 4)
        assert {code for code, _, _ in found} == {42} and "more than 3" in str(found[0])
        assert await delete(client, *[AclFilter(resource_name="t")] * 3) == [(0, None, {T})] * 3


@pytest.mark.parametrize(("release", "place"), [("4.3", ""), ("ottla", ""), ("2.8", " on the broker")])
async def test_acl_apis_without_an_authorizer(release: str, place: str, tmp_path: Path) -> None:
    async with running(tmp_path / "data", release=release) as broker:
        client = await broker.client()
        disabled = (54, f"No Authorizer is configured{place}.")
        assert await create(client, T, T._replace(operation=1), T._replace(resource_name="")) == [disabled] * 3
        assert await delete(client, AclFilter(), AclFilter(operation=77)) == [(*disabled, set())] * 2
        response = await client.call(DescribeAclsRequest(**parts(AclFilter())), 2)
        assert (response.error_code, response.error_message) == (54, "No Authorizer is configured on the broker")
        assert response.resources == [] and await create(client) == [] and await delete(client) == []


async def test_acl_apis_require_authorization(tmp_path: Path) -> None:
    refused = (31, "Cluster authorization failed.")
    cluster = T._replace(resource_type=4, resource_name="kafka-cluster", principal="User:ANONYMOUS")
    async with served(tmp_path, super_users="User:admin") as broker:
        client = await broker.client()
        for describes, alters, entry in (
            (False, False, T),
            (True, False, cluster._replace(operation=8)),
            (True, True, cluster._replace(operation=7)),
        ):
            broker.state.acls.add([entry], 0)
            response = await client.call(DescribeAclsRequest(**parts(AclFilter())), 2)
            assert (response.error_code, response.error_message) == (OK if describes else refused)
            assert bool(response.resources) == describes
            assert await create(client, T, T) == [OK if alters else refused] * 2
            nothing = AclFilter(resource_name="nothing")
            assert await delete(client, nothing, nothing) == [(0, None, set()) if alters else (*refused, set())] * 2


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_every_version_and_pattern_types_since_v1(version: int, tmp_path: Path) -> None:
    async with served(tmp_path, "ottla") as broker:
        client = await broker.client()
        prefixed = T._replace(pattern_type=4)
        broker.state.acls.add([prefixed], 0)
        assert await create(client, T, version=version) == [OK]
        everything = 3 if version == 0 else 1
        seen = {T} if version == 0 else {T, prefixed}
        assert await describe(client, version, pattern_type=everything) == seen
        assert await delete(client, AclFilter(pattern_type=everything), version=version) == [(0, None, seen)]
        assert set(broker.state.acls.find(AclFilter())) == {T, prefixed} - seen


async def test_acls_survive_a_restart(tmp_path: Path) -> None:
    u, v = T._replace(resource_name="u"), T._replace(resource_name="v")
    async with served(tmp_path) as broker:
        client = await broker.client()
        await create(client, T, u, v)
        await delete(client, AclFilter(resource_name="u"))
    async with running(tmp_path / "data", release="4.3"):
        pass  # without an authorizer they are kept but not used
    async with served(tmp_path) as broker:
        client = await broker.client()
        assert await describe(client) == {T, v}
        assert await delete(client, AclFilter(resource_name="v")) == [(0, None, {v})] and await create(client, u) == [
            OK
        ]
    async with served(tmp_path) as broker:
        assert await describe(await broker.client()) == {T, u}


async def test_nodes_share_acls(tmp_path: Path) -> None:
    async with served(tmp_path, brokers=3) as broker:
        clients = [await broker.client(number) for number in range(3)]
        assert await create(clients[0], T) == [OK]
        assert [await describe(client) for client in clients] == [{T}] * 3
        assert await delete(clients[2], AclFilter()) == [(0, None, {T})]
        assert [await describe(client) for client in clients] == [set()] * 3


async def test_disk_failure_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.storage.errors import StorageError

    def fail(*_: Iterable[object], **__: object) -> None:
        raise StorageError("no room")

    async with served(tmp_path) as broker:
        client = await broker.client()
        await create(client, T)
        monkeypatch.setattr(broker.state.metadata_log, "write", fail)
        assert await create(client, T, T._replace(resource_name="u")) == [(56, None)] * 2
        assert await delete(client, AclFilter()) == [(56, None, set())]
        assert await describe(client) == {T}


async def test_dump_shows_acl_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with served(tmp_path) as broker:
        client = await broker.client()
        await create(client, T)
        await delete(client, AclFilter())
    segment = max((tmp_path / "data" / "__cluster_metadata-0").glob("*.log"))
    code, out, error = runner(capsys)("--records", segment)
    assert (code, error) == (0, "")
    added, removed = out.index(" AccessControlEntryRecord v0"), out.index("RemoveAccessControlEntryRecord v0")
    assert added < out.index("User:a") < removed


async def test_snapshot_includes_acls() -> None:
    configs = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}
    u = T._replace(resource_name="u")
    with Embedded(configs=configs) as broker:

        async def there(*, more: Acl | None = None) -> set[Acl]:
            host, _, port = broker.bootstrap.rpartition(":")
            client = await Client.connect(int(port), host)
            if more is not None:
                assert await create(client, more) == [OK]
            found = await describe(client)
            client.close()
            return found

        assert await there(more=T) == {T}
        snapshot = broker.snapshot()
        assert await there(more=u) == {T, u}
        await asyncio.to_thread(broker.restore, snapshot)
        assert await there() == {T}
        await asyncio.to_thread(broker.reset)
        assert await there() == set()


async def test_revoked_rule_takes_effect_with_the_next_request(tmp_path: Path) -> None:
    """Also in fetch sessions that have begun before, and for requests that repeat earlier ones."""
    more: dict[str, Any] = {**SECURED}
    async with served(tmp_path, **more) as broker:
        await broker.topic("t")
        admin, ann = await broker.client(), await logged_in(broker)
        operations = int(AclOperation.READ), int(AclOperation.WRITE)
        rules = [Acl(2, "t", 3, "User:ann", "*", operation, 3) for operation in operations]
        assert await create(admin, *rules) == [OK, OK]
        begun = await ann.call(fetch(("t", 0, 0), session_epoch=0), 12)
        assert only(begun).error_code == 0 and begun.session_id
        epoch = 0
        for allowed in (True, False, True, False):
            for _ in range(3):
                epoch += 1
                found = await ann.call(fetch(session_id=begun.session_id, session_epoch=epoch), 12)
                assert found.error_code == 0
                wanted = {29} if not allowed else {0}
                assert {one.partitions[0].error_code for one in found.responses} <= wanted
                assert found.responses or allowed, "an error is reported each time"
                assert only(await ann.call(produce(records(b"v")), 9)).error_code in wanted
            if allowed:
                ((code, _, deleted),) = await delete(admin, AclFilter(1, None, 1, "User:ann", None, 1, 1))
                assert (code, deleted) == (0, set(rules))
            else:
                assert await create(admin, *rules) == [OK, OK]


async def test_host_decides_for_anonymous_clients(tmp_path: Path) -> None:
    """A client from 127.0.0.2 has another host; both are anonymous."""
    anonymous = Acl(4, "kafka-cluster", 3, "User:ANONYMOUS", "127.0.0.1", 8, 3)
    async with served(tmp_path, super_users="") as broker:

        async def may(host: str) -> bool:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[0], local_addr=(host, 0))
            client = Client(reader, writer)
            response = await client.call(DescribeAclsRequest(**parts(AclFilter())), 2)
            client.close()
            assert response.error_code in (0, 31)
            return response.error_code == 0

        async def allowed(*acls: Acl) -> tuple[bool, bool]:
            broker.state.acls.remove(broker.state.acls.find(AclFilter()), 0)
            broker.state.acls.add(acls, 0)
            return await may("127.0.0.1"), await may("127.0.0.2")

        elsewhere = anonymous._replace(host="127.0.0.2")
        everywhere = anonymous._replace(host="*")
        assert await allowed() == (False, False)
        assert await allowed(anonymous) == (True, False)
        assert await allowed(elsewhere) == (False, True)
        assert await allowed(everywhere) == (True, True)
        assert await allowed(everywhere, anonymous._replace(permission_type=2)) == (False, True)
        assert await allowed(everywhere._replace(principal="User:*")) == (True, True)
        assert await allowed(everywhere._replace(principal="User:somebody")) == (False, False)


@pytest.mark.parametrize(
    ("name", "host"), [("::1", "0:0:0:0:0:0:0:1"), ("127.0.0.1", "127.0.0.1")], ids=["v6", "v4 of a socket for both"]
)
async def test_host_addresses_are_compared_in_javas_format(name: str, host: str, tmp_path: Path) -> None:
    """Java does not abbreviate zeros of an IPv6 address, and shows an IPv4 address on an IPv6 socket as IPv4."""
    rule = Acl(4, "kafka-cluster", 3, "User:ANONYMOUS", host, 8, 3)
    async with served(tmp_path, super_users="", listeners="PLAINTEXT://[::]:0") as broker:
        client = await broker.client(host=name)

        async def may() -> int:
            return (await client.call(DescribeAclsRequest(**parts(AclFilter())), 2)).error_code

        broker.state.acls.add([rule], 0)
        assert await may() == 0
        broker.state.acls.remove([rule], 0)
        broker.state.acls.add([rule._replace(host="::1")], 0)
        assert await may() == 31


@pytest.mark.process
def test_a_start_with_an_unknown_authorizer_is_one_line(tmp_path: Path) -> None:
    command = [*COMMAND, "--data-dir", str(tmp_path / "data"), "--override", "authorizer.class.name=org.example.Own"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "") and not (tmp_path / "data").exists()
    assert done.stderr.count("\n") == 1 and "Class org.example.Own could not be found" in done.stderr
