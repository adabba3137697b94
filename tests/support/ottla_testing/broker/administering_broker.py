"""Calls of all administration routes of a control plane, with their refusals, over any broker without members."""

from __future__ import annotations

from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla_testing.broker.controlling import Api
from ottla_testing.broker.harness import Broker

Topic = OffsetCommitRequest.OffsetCommitRequestTopic
ALICE = {"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:alice", "operation": "READ"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


async def commit(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commits offsets for a group without members."""
    client = await broker.client()
    partitions = [
        Topic.OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
        for index, offset in offsets.items()
    ]
    result = await client.call(
        OffsetCommitRequest(group_id=group, topics=[Topic(name=topic, partitions=partitions)]), 3
    )
    assert all(one.error_code == 0 for one in result.topics[0].partitions)
    client.close()


async def resets(api: Api) -> None:
    """Calls every scenario of a reset, over two partitions of five records, a second apart."""
    await api.call("POST", "/topics", {"name": "read", "partitions": 2})
    for index in range(2):
        records = [{"value": "x", "partition": index, "timestamp_ms": 1000 * (n + 1)} for n in range(5)]
        await api.call("POST", "/topics/read/records", {"records": records})
    first = {"to": "offset", "offset": 3, "of": [{"topic": "read", "partition": 0}]}
    assert (await api.call("POST", "/groups/readers/offsets", first))["offsets"][0]["before"] is None

    async def after(**body: object) -> list[tuple[int, int | None, int]]:
        result = await api.call("POST", "/groups/readers/offsets", body)
        assert (result["group"], result["done"]) == ("readers", not body.get("dry_run", False))
        assert all(
            (one["topic"], one["start_offset"], one["end_offset"]) == ("read", 0, 5) for one in result["offsets"]
        )
        return [(one["partition"], one["before"], one["after"]) for one in result["offsets"]]

    assert await after(to="earliest", dry_run=True) == [(0, 3, 0)]
    (committed,) = (await api.call("GET", "/groups/readers"))["offsets"]
    assert (committed["offset"], committed["start_offset"], committed["end_offset"], committed["lag"]) == (3, 0, 5, 2)
    assert await after(to="earliest") == [(0, 3, 0)]
    both = [{"topic": "read"}]
    assert await after(to="latest", of=both) == [(0, 0, 5), (1, None, 5)]
    assert await after(to="shift", shift_by=-2) == [(0, 5, 3), (1, 5, 3)]
    assert await after(to="offset", offset=1, of=[{"topic": "read", "partition": 1}]) == [(1, 3, 1)]
    assert await after(to="current", of=both) == [(0, 3, 3), (1, 1, 1)]
    assert await after(to="time", time_ms=1500, of=both) == [(0, 3, 1), (1, 1, 1)]
    assert await after(to="time", time_ms=9000) == [(0, 1, 5), (1, 1, 5)]
    result = await api.call("POST", "/groups/readers/offsets", {"to": "shift", "shift_by": 2})
    assert [(one["after"], one["wanted"]) for one in result["offsets"]] == [(5, 7), (5, 7)]
    assert [one["lag"] for one in (await api.call("GET", "/groups/readers"))["offsets"]] == [0, 0]
    for body, status, text in (
        ({"to": "shift"}, 400, "a reset to shift needs shift_by"),
        ({"to": "earliest", "offset": 1}, 400, "a reset to earliest takes no offset"),
        ({"to": "latest", "of": [{"topic": "none"}]}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"to": "latest", "of": [{"topic": "read", "partition": 2}]}, 404, 'The partitions "read-2" do not exist'),
        ({"to": "nowhere"}, 400, "accepted are current, earliest, "),
    ):
        assert text in await api.call("POST", "/groups/readers/offsets", body, status)
    shift = {"to": "shift", "shift_by": 1, "of": both}
    refused = await api.call("POST", "/groups/others/offsets", shift, 400)
    assert (
        refused
        == "INVALID_REQUEST: Cannot shift offset for partition read-0 since there is no current committed offset"
    )
    assert await api.call("DELETE", "/groups/readers") == {"removed": 1}
    assert "GROUP_ID_NOT_FOUND" in await api.call("DELETE", "/groups/readers", status=404)
    await api.call("DELETE", "/topics/read")


async def configs(api: Api) -> None:
    """Shows and changes configs of a topic and of the broker."""
    await api.call("POST", "/topics", {"name": "c", "configs": {"retention.ms": "1000"}})

    async def one(path: str, name: str) -> tuple[str | None, str | None, str]:
        (found,) = [one for one in (await api.call("GET", path))["configs"] if one["name"] == name]
        return found["value"], found["default"], found["source"]

    topic, broker = "/topics/c/configs", "/broker/configs"
    assert await one(topic, "retention.ms") == ("1000", "604800000", "DYNAMIC_TOPIC_CONFIG")
    assert await one(topic, "segment.bytes") == ("1073741824", "1073741824", "DEFAULT_CONFIG")
    change = {"set": {"retention.ms": "2000", "segment.ms": "60000"}, "append": {"cleanup.policy": "compact"}}
    await api.call("PATCH", topic, change | {"dry_run": True})
    assert (await api.call("GET", "/topics/c"))["configs"] == {"retention.ms": "1000"}
    await api.call("PATCH", topic, change)
    changed = {"retention.ms": "2000", "segment.ms": "60000", "cleanup.policy": "delete,compact"}
    assert (await api.call("GET", "/topics/c"))["configs"] == changed
    await api.call("PATCH", topic, {"delete": ["segment.ms"], "subtract": {"cleanup.policy": "delete"}})
    assert (await api.call("GET", "/topics/c"))["configs"] == {"retention.ms": "2000", "cleanup.policy": "compact"}
    for path, body, status, text in (
        (topic, {"set": {"retention.ms": "soon"}}, 400, "INVALID_CONFIG"),
        (topic, {"set": {"no.such": "1"}}, 400, "INVALID_CONFIG: Unknown topic config name: no.such"),
        (topic, {"set": {"segment.ms": "1"}, "delete": ["segment.ms"]}, 400, "INVALID_REQUEST"),
        (topic, {"set": {"segment.ms": "1"}, "for_all": True}, 400, "for_all applies only to configs of the broker"),
        ("/topics/none/configs", {"set": {"segment.ms": "1"}}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (broker, {"set": {"log.dirs": "/elsewhere"}}, 400, "Cannot update these configs dynamically: [log.dirs]"),
        (broker, {"set": {"log.cleaner.threads": "many"}}, 400, "Invalid value many"),
    ):
        assert text in await api.call("PATCH", path, body, status)
    await api.call("PATCH", broker, {"set": {"message.max.bytes": "2000000"}, "for_all": True})
    assert await one(broker, "message.max.bytes") == ("2000000", "1048588", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    await api.call("PATCH", broker, {"set": {"message.max.bytes": "3000000"}})
    assert await one(broker, "message.max.bytes") == ("3000000", "1048588", "DYNAMIC_BROKER_CONFIG")
    assert (await one(topic, "max.message.bytes"))[0] == "3000000"
    await api.call("PATCH", broker, {"delete": ["message.max.bytes"]})
    await api.call("PATCH", broker, {"delete": ["message.max.bytes"], "for_all": True})
    assert await one(broker, "message.max.bytes") == ("1048588", "1048588", "DEFAULT_CONFIG")
    found = {one["name"]: one for one in (await api.call("GET", broker))["configs"]}
    assert found["log.dirs"]["is_read_only"] and not found["message.max.bytes"]["is_read_only"]
    assert found["message.max.bytes"]["documentation"] and found["message.max.bytes"]["type"] == "INT"
    await api.call("GET", "/topics/none/configs", status=404)
    await api.call("DELETE", "/topics/c")


async def without_authorizer(api: Api) -> None:
    """Calls each route of access control lists without an authorizer."""
    refused = "SECURITY_DISABLED: No Authorizer is configured on the broker"
    assert await api.call("GET", "/acls", status=409) == refused
    assert await api.call("POST", "/acls", {"acls": [ALICE]}, 409) == refused
    assert await api.call("DELETE", "/acls?principal=User:alice", status=409) == refused


async def acls(api: Api) -> None:
    """Calls each route of access control lists with an authorizer."""
    assert await api.call("GET", "/acls") == {"acls": []}
    bob = {**ALICE, "principal": "User:bob", "pattern_type": "PREFIXED", "permission": "DENY", "host": "10.0.0.1"}
    assert await api.call("POST", "/acls", {"acls": [ALICE, bob]}) == {}
    assert await api.call("POST", "/acls", {"acls": [ALICE]}) == {}
    alice = {**ALICE, "pattern_type": "LITERAL", "permission": "ALLOW", "host": "*"}
    assert (await api.call("GET", "/acls"))["acls"] == [alice, bob]
    assert (await api.call("GET", "/acls?pattern_type=MATCH&resource_name=orders2"))["acls"] == [bob]
    assert (await api.call("GET", "/acls?operation=WRITE"))["acls"] == []
    for entry, text in (
        (ALICE | {"principal": "alice"}, "no colon is present"),
        (ALICE | {"resource_name": ""}, "Invalid empty resource name"),
        (ALICE | {"resource_type": "CLUSTER"}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (ALICE | {"operation": "ANY"}, "accepted are ALL, ALTER, "),
    ):
        assert text in await api.call("POST", "/acls", {"acls": [entry, ALICE | {"host": "h"}]}, 400)
    assert len((await api.call("GET", "/acls"))["acls"]) == 2
    assert await api.call("DELETE", "/acls?principal=User:bob") == {"removed": 1}
    assert await api.call("DELETE", "/acls") == {"removed": 1}
    assert await api.call("GET", "/acls") == {"acls": []}
