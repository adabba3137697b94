"""The admin client and ACLs, quotas and credentials, against many releases and against scripted brokers."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.admin import (
    ANY_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    quota_entity,
)
from ottla.client.admin.security import salted
from ottla.client.net.errors import ConfigError, KafkaError, UnsupportedVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.security.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import running
from ottla_testing.client.admin_calls import in_turn, run
from ottla_testing.client.administering import RELEASES, administering, code, codes, since
from ottla_testing.client.scripted import ScriptedNetwork, metadata
from ottla_testing.each import each

SUPER = {"super.users": "User:ANONYMOUS"}
KRAFT = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
TOPIC, GROUP, LITERAL, PREFIXED = (
    *(AclResourceType.TOPIC, AclResourceType.GROUP),
    *(PatternType.LITERAL, PatternType.PREFIXED),
)
ALLOW, READ = PermissionType.ALLOW, AclOperation.READ
ONE = AclBinding(TOPIC, "t", LITERAL, "User:anna", "*", READ, ALLOW)
PREFIX = AclBinding(TOPIC, "te", PREFIXED, "User:bob", "1.2.3.4", AclOperation.ALL, PermissionType.DENY)
OTHER = AclBinding(GROUP, "g", LITERAL, "User:anna", "*", READ, ALLOW)
ALICE, BOTH, DEFAULT = (
    quota_entity({"user": "alice"}),
    quota_entity({"client-id": "c", "user": "alice"}),
    quota_entity({"user": None}),
)


# Access control lists


async def test_acls_are_created_described_and_deleted(tmp_path: Path) -> None:
    overrides = {"authorizer.class.name": KRAFT, **SUPER}
    async with running(tmp_path, release="4.3", overrides=overrides) as broker, administering(broker) as admin:
        assert await admin.describe_acls() == [] and await admin.create_acls([]) == {}
        bad = ONE._replace(resource_name="")
        made = await admin.create_acls([ONE, PREFIX, bad, OTHER, ONE])
        assert list(made) == [ONE, PREFIX, bad, OTHER]
        assert codes(made) == [0, 0, ErrorCode.INVALID_REQUEST, 0]
        assert await admin.describe_acls() == sorted([ONE, PREFIX, OTHER])
        assert await admin.describe_acls(AclFilter(principal="User:anna", resource_type=GROUP)) == [OTHER]
        assert await admin.describe_acls(AclFilter(TOPIC, "tea", PatternType.MATCH)) == [PREFIX]
        assert await admin.describe_acls(AclFilter(TOPIC, "tea", PatternType.ANY)) == []
        filters = [AclFilter(permission=PermissionType.DENY), AclFilter(TOPIC), AclFilter(host="absent")]
        gone = await admin.delete_acls(filters)
        assert list(gone.values()) == [[PREFIX], [ONE, PREFIX], []]  # two filters matched PREFIX
        assert await admin.describe_acls() == [OTHER]


@each("release", RELEASES, strided=True)
async def test_acls_without_an_authorizer_raise_security_disabled(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        expected: type[Exception] = KafkaError if since(release, "0.11") else UnsupportedVersion
        match = "SECURITY_DISABLED" if since(release, "0.11") else "DescribeAcls"
        with pytest.raises(expected, match=match):
            await admin.describe_acls()
        assert isinstance((await admin.create_acls([ONE]))[ONE], expected)
        some = AclFilter(TOPIC)
        assert isinstance((await admin.delete_acls([some]))[some], expected)


def old(network: ScriptedNetwork) -> Any:
    """Returns a broker whose ACLs have no pattern types."""
    apis = {MetadataRequest: "0-5", DescribeAclsRequest: "0", CreateAclsRequest: "0", DeleteAclsRequest: "0"}
    broker = network.broker(versions=apis)
    broker.does[MetadataRequest] = in_turn(metadata({1: ("one", 9092)}, controller_id=1))
    return broker


def test_acls_v0_support_only_literal_patterns() -> None:
    network = ScriptedNetwork()
    broker = old(network)
    broker.does[CreateAclsRequest] = in_turn(
        CreateAclsResponse(results=[CreateAclsResponse.AclCreationResult(error_code=0, error_message=None)])
    )
    cls = DescribeAclsResponse.DescribeAclsResource
    description = cls.AclDescription(principal="User:anna", host="*", operation=99, permission_type=3)
    broker.does[DescribeAclsRequest] = in_turn(
        DescribeAclsResponse(
            error_code=0, error_message=None, resources=[cls(resource_type=2, resource_name="t", acls=[description])]
        )
    )

    async def calls(admin: Any) -> Any:
        made = await admin.create_acls([ONE])
        with pytest.raises(UnsupportedVersion, match="no pattern type MATCH"):
            await admin.describe_acls(AclFilter(pattern_type=PatternType.MATCH))
        return made, await admin.create_acls([PREFIX]), await admin.describe_acls()

    (made, refused, found), _ = run(network, calls)
    assert made == {ONE: None} and isinstance(refused[PREFIX], UnsupportedVersion)
    assert found == [ONE._replace(operation=AclOperation.UNKNOWN)]  # a code newer than this client


def test_acl_that_could_not_be_removed_is_the_error_of_its_filter() -> None:
    network = ScriptedNetwork()
    result = DeleteAclsResponse.DeleteAclsFilterResult
    codes = {"resource_type": 2, "resource_name": "t", "pattern_type": 3, "operation": 3, "permission_type": 3}
    one = result.DeleteAclsMatchingAcl(error_code=31, error_message="not you", principal="User:anna", host="*", **codes)
    old(network).does[DeleteAclsRequest] = in_turn(
        DeleteAclsResponse(filter_results=[result(error_code=0, error_message=None, matching_acls=[one])])
    )
    some = AclFilter(TOPIC)
    found, _ = run(network, lambda admin: admin.delete_acls([some]))
    assert code(found[some]) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and "not you" in str(found[some])


# Quotas


@each("release", RELEASES, strided=True)
async def test_quotas_are_altered_described_and_deleted(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        changes = {ALICE: {"producer_byte_rate": 1024.0}, BOTH: {"request_percentage": 5.5}}
        done = await admin.alter_client_quotas({**changes, DEFAULT: {"producer_byte_rate": 9.0, "no.such": 1.0}})
        if not since(release, "2.6"):
            assert all(isinstance(outcome, UnsupportedVersion) for outcome in done.values())
            with pytest.raises(UnsupportedVersion, match="DescribeClientQuotas"):
                await admin.describe_client_quotas()
            return
        assert codes(done) == [0, 0, ErrorCode.INVALID_REQUEST]
        assert BOTH == (("user", "alice"), ("client-id", "c"))
        assert await admin.describe_client_quotas() == changes
        assert await admin.describe_client_quotas({"user": "alice"}, strict=True) == {ALICE: changes[ALICE]}
        assert await admin.describe_client_quotas({"user": ANY_NAME, "client-id": "c"}) == {BOTH: changes[BOTH]}
        assert await admin.describe_client_quotas({"user": None}) == {}
        tried = await admin.alter_client_quotas({DEFAULT: {"consumer_byte_rate": 7.0}}, validate_only=True)
        assert tried == {DEFAULT: None} and await admin.describe_client_quotas({"user": None}) == {}
        given = (("client-id", "c"), ("user", "alice"))  # in any order
        assert await admin.alter_client_quotas({given: {"request_percentage": None}}) == {BOTH: None}
        assert await admin.describe_client_quotas({"user": "alice"}) == {ALICE: changes[ALICE]}
        with pytest.raises(KafkaError, match=r"UNSUPPORTED_VERSION|INVALID_REQUEST"):
            await admin.describe_client_quotas({"colour": "red"})


# Users


@each("release", ("2.6", "2.8", "4.3", "ottla"), strided=True)
async def test_credentials_are_stored_described_and_deleted(release: str, tmp_path: Path) -> None:
    small, large = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        changes = [
            *(ScramUpsertion("anna", small, "secret", 4096), ScramUpsertion("bob", large, "other", 5000)),
            *(ScramUpsertion("carl", small, "few", 1), ScramDeletion("dora", small)),
        ]
        done = await admin.alter_user_scram_credentials(changes)
        if release == "2.6":
            assert all(isinstance(outcome, UnsupportedVersion) for outcome in done.values())
            return
        unacceptable, missing = ErrorCode.UNACCEPTABLE_CREDENTIAL, ErrorCode.RESOURCE_NOT_FOUND
        assert {user: code(outcome) for user, outcome in done.items()} == {
            **{"anna": 0, "bob": 0},
            **{"carl": unacceptable, "dora": missing},
        }
        assert await admin.describe_user_scram_credentials() == {"anna": ((small, 4096),), "bob": ((large, 5000),)}
        some = await admin.describe_user_scram_credentials(["bob", "dora", "bob"])
        assert some["bob"] == ((large, 5000),) or code(some["bob"]) == ErrorCode.DUPLICATE_RESOURCE
        assert code(some["dora"]) == missing
        assert await admin.alter_user_scram_credentials([ScramDeletion("anna", small)]) == {"anna": None}
        assert list(await admin.describe_user_scram_credentials()) == ["bob"]
        assert await admin.alter_user_scram_credentials([]) == {}


def test_password_is_salted_and_hashed() -> None:
    # The example of RFC 7677: the stored keys are derived from this salted password.
    salt = bytes.fromhex("5b6d99689d1235 8eec a04b 14 1236 fa 81".replace(" ", ""))
    wanted = ScramUpsertion("user", ScramMechanism.SCRAM_SHA_256, "pencil", 4096)
    found = salted(wanted, salt)
    assert found == hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096) and len(found) == 32
    assert len(salted(wanted._replace(mechanism=ScramMechanism.SCRAM_SHA_512, iterations=1), salt)) == 64
    for bad in (wanted._replace(mechanism=ScramMechanism.UNKNOWN), wanted._replace(iterations=0)):
        with pytest.raises(ConfigError):
            salted(bad, salt)
