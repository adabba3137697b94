"""ACLs of real admin clients, with an authorizer and without, and their effect on clients by host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as PyResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    InvalidRequestError,
    NoError,
    SecurityDisabledError,
    TopicAuthorizationFailedError,
)

from ottla.broker import Embedded
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_MS, PATIENCE_S

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
READ, WRITE, ALL, DESCRIBE = ACLOperation.READ, ACLOperation.WRITE, ACLOperation.ALL, ACLOperation.DESCRIBE
ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY
LITERAL, PREFIXED = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
TOPIC, GROUP, CLUSTER = PyResourceType.TOPIC, PyResourceType.GROUP, PyResourceType.CLUSTER
HERE, ELSEWHERE = "127.0.0.1", "10.9.8.7"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with an authorizer for which all principals are super users; tests use names of their own."""
    with Embedded(configs={"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS"}) as broker:
        yield broker.bootstrap


@pytest.fixture
def admin_of() -> Iterator[Callable[[str], Any]]:
    made: list[Any] = []

    def connect(address: str) -> Any:
        made.append(KafkaAdminClient(bootstrap_servers=address))
        return made[-1]

    yield connect
    for admin in made:
        admin.close()


def acl(name: str, operation: Any = READ, permission: Any = ALLOW, host: str = "*", **more: Any) -> ACL:
    pattern = ResourcePattern(more.get("kind", TOPIC), name, more.get("pattern", LITERAL))
    return ACL(more.get("who", "User:a"), host, operation, permission, pattern)


def by_name(name: str | None, pattern: Any = ACLResourcePatternType.ANY, kind: Any = PyResourceType.ANY) -> ACLFilter:
    wanted = ResourcePatternFilter(kind, name, pattern)
    return ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, wanted)


def rows(acls: list[ACL]) -> set[tuple[Any, ...]]:
    return {
        (one.principal, one.host, one.operation, one.permission_type, *vars(one.resource_pattern).values())
        for one in acls
    }


def test_acls_of_kafka_python(address: str, admin_of: Callable[[str], Any], name: str) -> None:
    admin = admin_of(address)
    made = [acl(name), acl(name, WRITE, DENY, HERE), acl(name, pattern=PREFIXED, kind=GROUP, who="User:b")]
    assert admin.create_acls([*made, made[0]])["failed"] == []
    found, error = admin.describe_acls(by_name(name))
    assert error is NoError and rows(found) == rows(made)
    matching, _ = admin.describe_acls(by_name(f"{name}-1", ACLResourcePatternType.MATCH, GROUP))
    assert rows(matching) == rows(made[2:])
    assert admin.describe_acls(by_name(f"{name}-1"))[0] == []
    (_, gone, error), (_, none, other) = admin.delete_acls([by_name(name, LITERAL), by_name("nothing of that name")])
    assert rows(gone) == rows(made[:2]) and none == [] and error is other is NoError
    assert rows(admin.describe_acls(by_name(name))[0]) == rows(made[2:])


def test_kafka_python_with_invalid_acls(address: str, admin_of: Callable[[str], Any], name: str) -> None:
    admin = admin_of(address)
    response = admin.create_acls(
        [
            acl(""),
            acl("any other", kind=CLUSTER),
            acl(name, who="nobody"),
            acl(name),
            acl("kafka-cluster", kind=CLUSTER),
        ]
    )
    assert response["failed"] == [InvalidRequestError] * 3 and len(response["succeeded"]) == 2
    assert rows(admin.describe_acls(by_name(name))[0]) == rows([acl(name)])


def test_acls_of_confluent(address: str, name: str) -> None:
    admin: Any = AdminClient({"bootstrap.servers": address})
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED

    def binding(pattern: Any, operation: Any, name: str = name, who: str = "User:a") -> AclBinding:
        return AclBinding(ResourceType.TOPIC, name, pattern, who, "*", operation, AclPermissionType.ALLOW)

    def named(pattern: Any, text: str = name) -> Any:
        anyone: Any = None
        anything = AclOperation.ANY, AclPermissionType.ANY
        return AclBindingFilter(ResourceType.TOPIC, text, pattern, anyone, anyone, *anything)

    made = [binding(literal, AclOperation.READ), binding(prefixed, AclOperation.WRITE)]
    for future in admin.create_acls(made).values():
        assert future.result(PATIENCE_S) is None
    assert set(admin.describe_acls(named(ResourcePatternType.ANY)).result(PATIENCE_S)) == set(made)
    match = admin.describe_acls(named(ResourcePatternType.MATCH, f"{name}-1")).result(PATIENCE_S)
    assert match == made[1:]
    filters = [named(literal), named(literal, "nothing of that name")]
    assert [list(f.result(PATIENCE_S)) for f in admin.delete_acls(filters).values()] == [made[:1], []]
    assert admin.describe_acls(named(ResourcePatternType.ANY)).result(PATIENCE_S) == made[1:]
    wrong = [binding(literal, AclOperation.READ, name, "nobody"), made[0]]
    futures = admin.create_acls(wrong)
    with pytest.raises(KafkaException) as caught:
        futures[wrong[0]].result(PATIENCE_S)
    error = caught.value.args[0]
    assert error.code() == KafkaError.INVALID_REQUEST and "no colon is present" in error.str()
    assert futures[made[0]].result(PATIENCE_S) is None


def test_acls_without_an_authorizer_raise_security_disabled(
    broker: RunningBroker, admin_of: Callable[[str], Any]
) -> None:
    admin = admin_of(broker.address)
    with pytest.raises(SecurityDisabledError, match="No Authorizer is configured on the broker"):
        admin.describe_acls(by_name(None))
    assert admin.create_acls([acl("t"), acl("u")])["failed"] == [SecurityDisabledError] * 2
    assert admin.delete_acls([by_name(None)])[0][2] is SecurityDisabledError
    confluent: Any = AdminClient({"bootstrap.servers": broker.address})
    anything = AclOperation.ANY, AclPermissionType.ANY
    anyone: Any = None
    everything = AclBindingFilter(ResourceType.ANY, anyone, ResourcePatternType.ANY, anyone, anyone, *anything)
    (deleted,) = confluent.delete_acls([everything]).values()
    with pytest.raises(KafkaException) as caught:
        deleted.result(PATIENCE_S)
    error = caught.value.args[0]
    assert error.code() == KafkaError.SECURITY_DISABLED and error.str() == "No Authorizer is configured."
    # It ignores the top-level error code, also with a real Kafka.
    assert confluent.describe_acls(everything).result(PATIENCE_S) == []


@pytest.mark.usefixtures("close_what_kafka_python_leaves_open")
def test_acls_by_host_apply_to_unauthenticated_clients(tmp_path: Path, admin_of: Callable[[str], Any]) -> None:
    """All clients are anonymous here; permissions depend on the host, and survive a restart."""
    anonymous = {"who": "User:ANONYMOUS"}
    broker = RunningBroker(tmp_path, authorizer_class_name=STANDARD, super_users="User:ANONYMOUS")
    admin = admin_of(broker.address)
    admin.create_topics(["t", "u"])
    cluster = acl("kafka-cluster", ALL, host=HERE, kind=CLUSTER, **anonymous)
    group = acl("g", host=HERE, kind=GROUP, **anonymous)
    admin.create_acls([cluster, group, acl("t", ALL, host=ELSEWHERE, **anonymous)])
    admin.close()  # it would look for the broker while that is stopped
    del broker.overrides["super.users"]
    broker.restart()

    admin = admin_of(broker.address)

    def send(topic: str = "t") -> None:
        producer = KafkaProducer(bootstrap_servers=broker.address, max_block_ms=5000)
        try:
            producer.send(topic, b"x").get(PATIENCE_S)
        finally:
            producer.close()

    def receive(group: str = "g") -> bytes:
        consumer = KafkaConsumer(
            "t",
            bootstrap_servers=broker.address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=PATIENCE_MS,
        )
        try:
            return next(consumer).value
        finally:
            consumer.close()

    with pytest.raises(TopicAuthorizationFailedError):
        send()
    admin.create_acls([acl("t", WRITE, host=HERE, **anonymous)])
    send()
    with pytest.raises(TopicAuthorizationFailedError):
        send("u")
    with pytest.raises(TopicAuthorizationFailedError):
        receive()
    admin.create_acls([acl("t", READ, host=HERE, **anonymous)])
    assert receive() == b"x"
    with pytest.raises(GroupAuthorizationFailedError):
        receive("another")
    admin.create_acls([acl("t", WRITE, DENY, host="*", who="User:*")])
    with pytest.raises(TopicAuthorizationFailedError):
        send()
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("t", b"y", on_delivery=lambda error, message: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    admin.delete_acls([by_name("kafka-cluster")])
    with pytest.raises(ClusterAuthorizationFailedError):
        admin.describe_acls(by_name(None))
    broker.close()
