"""The retries of the admin client: moved controllers, leaders and coordinators, silent brokers, the timeout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.admin.admin import LATEST, Admin, ConfigResource, GroupDescription
from ottla.client.net.errors import ConnectionLost, InvalidRequest, KafkaError, RequestTimedOut
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.client.admin_calls import TWO, in_turn, run
from ottla_testing.client.scripted import CLOSE, SILENT, ScriptedBroker, ScriptedNetwork, metadata

VERSIONS = {
    MetadataRequest: "0-13",
    FindCoordinatorRequest: "0-6",
    DeleteTopicsRequest: "0-6",
    ListOffsetsRequest: "0-11",
    DescribeGroupsRequest: "0-6",
    ListGroupsRequest: "0-5",
}


@pytest.fixture
def network() -> ScriptedNetwork:
    return ScriptedNetwork()


def brokers(network: ScriptedNetwork, *responses: Any) -> tuple[ScriptedBroker, ScriptedBroker]:
    """Returns two brokers that return the same metadata, one item of the list for each request."""
    one, two = network.broker(versions=VERSIONS), network.broker("two", versions=VERSIONS)
    one.does[MetadataRequest] = two.does[MetadataRequest] = in_turn(*responses)
    return one, two


# Controllers


def deleting(**codes: int) -> Callable[[Any], DeleteTopicsResponse]:
    """Builds a DeleteTopics response: the code of each requested topic, 0 by default."""

    def respond(request: Any) -> DeleteTopicsResponse:
        result = DeleteTopicsResponse.DeletableTopicResult
        return DeleteTopicsResponse(
            responses=[result(name=t.name, error_code=codes.get(t.name, 0)) for t in request.topics]
        )

    return respond


def deleted(broker: ScriptedBroker) -> list[list[str]]:
    return [[topic.name for topic in heard.request.topics] for heard in broker.requests_of(DeleteTopicsRequest)]


@pytest.mark.parametrize("first", [deleting(t=41), CLOSE], ids=["not the controller", "closes"])
def test_moved_controller_is_found_again(first: Any, network: ScriptedNetwork) -> None:
    one, two = brokers(network, metadata(TWO, controller_id=1), metadata(TWO, controller_id=2))
    one.does[DeleteTopicsRequest], two.does[DeleteTopicsRequest] = in_turn(first), in_turn(deleting())
    found, seconds = run(network, lambda admin: admin.delete_topics(["t", "u"]))
    assert found == {"t": None, "u": None}
    assert deleted(one) == [["t", "u"]] and seconds >= 0.08
    assert deleted(two) == ([["t", "u"]] if first is CLOSE else [["t"]])  # finished topics are not requested again


def test_quota_error_is_retried_and_other_errors_are_returned(network: ScriptedNetwork) -> None:
    one, _ = brokers(network, metadata(TWO, controller_id=1))
    one.does[DeleteTopicsRequest] = in_turn(deleting(t=89, u=7), deleting(t=89), deleting())
    found, seconds = run(network, lambda admin: admin.delete_topics(["t", "u"]))
    assert found["t"] is None and found["u"].code == ErrorCode.REQUEST_TIMED_OUT
    assert deleted(one) == [["t", "u"], ["t"], ["t"]]
    assert 0.24 <= seconds <= 0.37  # retry.backoff.ms, then doubled, with jitter


def test_last_error_is_returned_after_the_timeout(network: ScriptedNetwork) -> None:
    one, _ = brokers(network, metadata(TWO, controller_id=1))
    one.does[DeleteTopicsRequest] = in_turn(deleting(t=41))
    found, seconds = run(network, lambda admin: admin.delete_topics(["t"]), default_api_timeout_ms=5000)
    assert found["t"].code == ErrorCode.NOT_CONTROLLER and 3.8 <= seconds <= 5
    assert 6 <= len(deleted(one)) <= 12


def test_silent_broker_ends_the_call_at_the_timeout(network: ScriptedNetwork) -> None:
    one, _ = brokers(network, metadata(TWO, controller_id=1))
    one.does[DeleteTopicsRequest] = in_turn(SILENT)
    found, seconds = run(network, lambda admin: admin.delete_topics(["t"], timeout_s=3))
    assert isinstance(found["t"], RequestTimedOut) and seconds == pytest.approx(3)


def test_item_missing_in_the_response_is_an_error(network: ScriptedNetwork) -> None:
    one, _ = brokers(network, metadata(TWO, controller_id=1))
    one.does[DeleteTopicsRequest] = in_turn(DeleteTopicsResponse(responses=[]))
    found, _ = run(network, lambda admin: admin.delete_topics(["t"]))
    assert found["t"].code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_rebootstrap_required_is_retried_from_the_bootstrap_addresses(network: ScriptedNetwork) -> None:
    """KIP-1102. The nodes of the response are obsolete, so none of them is connected to."""
    one, two = brokers(network, metadata(TWO), metadata(TWO, error_code=129), metadata({1: TWO[1]}, {"t": {0: 1}}))
    found, _ = run(network, lambda admin: admin.list_topics())
    assert list(found) == ["t"]
    assert len(one.requests_of(MetadataRequest)) == 3 and not two.links


# Leaders


def offsets(code: int = 0) -> Callable[[Any], ListOffsetsResponse]:
    def respond(request: Any) -> ListOffsetsResponse:
        item_class = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                item_class(
                    name=topic.name,
                    partitions=[
                        item_class.ListOffsetsPartitionResponse(
                            partition_index=p.partition_index, error_code=code, timestamp=-1, offset=7, leader_epoch=0
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return respond


WANTED = {("t", 0): LATEST, ("t", 1): LATEST}


def test_each_leader_is_requested_and_looked_up_again_if_moved(network: ScriptedNetwork) -> None:
    both = {"t": {0: 1, 1: 2}}
    one, two = brokers(
        network, metadata(TWO), metadata(TWO, {"t": 5}), metadata(TWO, {"t": {0: 1, 1: -1}}), metadata(TWO, both)
    )
    one.does[ListOffsetsRequest], two.does[ListOffsetsRequest] = in_turn(offsets(6), offsets()), in_turn(offsets())
    found, _ = run(network, lambda admin: admin.list_offsets(WANTED))
    assert [item_class.offset for item_class in found.values()] == [7, 7] and list(found) == list(WANTED)
    requested = [
        [p.partition_index for p in heard.request.topics[0].partitions] for heard in one.requests_of(ListOffsetsRequest)
    ]
    assert requested == [[0], [0]]
    named = [heard.request for heard in (*one.requests_of(MetadataRequest), *two.requests_of(MetadataRequest))][1:]
    assert len(named) == 3
    assert all([t.name for t in request.topics] == ["t"] for request in named)
    assert not any(request.allow_auto_topic_creation for request in named)


def test_old_broker_gets_metadata_requests_for_all_topics(network: ScriptedNetwork) -> None:
    old = {**VERSIONS, MetadataRequest: "0-3"}
    one = network.broker(versions=old)
    one.does[MetadataRequest] = in_turn(metadata({1: ("one", 9092)}, {"t": {0: 1}, "u": {0: 1}}))
    found, _ = run(network, lambda admin: admin.describe_topics(["t", "v"]))
    assert found["t"].name == "t" and found["v"].code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert one.requests_of(MetadataRequest)[-1].request.topics is None


def test_silent_leader_does_not_affect_other_leaders(network: ScriptedNetwork) -> None:
    one, two = brokers(network, metadata(TWO, {"t": {0: 1, 1: 2}}))
    one.does[ListOffsetsRequest], two.does[ListOffsetsRequest] = in_turn(offsets()), in_turn(SILENT)
    found, seconds = run(network, lambda admin: admin.list_offsets(WANTED, timeout_s=2))
    assert found["t", 0].offset == 7 and isinstance(found["t", 1], RequestTimedOut)
    assert seconds == pytest.approx(2)


# Coordinators


def finding(node_id: int, host: str) -> Callable[[Any], FindCoordinatorResponse]:
    def respond(request: Any) -> FindCoordinatorResponse:
        one = FindCoordinatorResponse.Coordinator
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[
                one(key=k, node_id=node_id, host=host, port=9092, error_code=0, error_message="") for k in keys
            ]
        )

    return respond


def groups(code: int = 0) -> Callable[[Any], DescribeGroupsResponse]:
    def respond(request: Any) -> DescribeGroupsResponse:
        item_class = DescribeGroupsResponse.DescribedGroup
        return DescribeGroupsResponse(
            groups=[
                item_class(
                    error_code=code,
                    group_id=group,
                    group_state="Empty",
                    protocol_type="",
                    protocol_data="",
                    members=[],
                )
                for group in request.groups
            ]
        )

    return respond


@pytest.mark.parametrize("first", [groups(16), groups(15), CLOSE], ids=["moved", "not available", "closes"])
def test_moved_coordinator_is_found_again(first: Any, network: ScriptedNetwork) -> None:
    one, two = brokers(network, metadata(TWO))
    one.does[DescribeGroupsRequest], two.does[DescribeGroupsRequest] = in_turn(first), in_turn(groups())
    for broker in (one, two):
        broker.does[FindCoordinatorRequest] = in_turn(finding(2, "two"))
    one.does[FindCoordinatorRequest] = in_turn(finding(1, "one"), finding(2, "two"))
    found, _ = run(network, lambda admin: admin.describe_groups(["g"]))
    assert found == {"g": GroupDescription("g", "Empty", "", "", 2, ())}
    assert (len(one.requests_of(DescribeGroupsRequest)), len(two.requests_of(DescribeGroupsRequest))) == (1, 1)


def test_loading_coordinator_is_not_looked_up_again(network: ScriptedNetwork) -> None:
    one, _ = brokers(network, metadata(TWO))
    one.does[FindCoordinatorRequest] = in_turn(finding(1, "one"))
    one.does[DescribeGroupsRequest] = in_turn(groups(14), groups(14), groups())
    found, _ = run(network, lambda admin: admin.describe_groups(["g"]))
    assert found["g"].state == "Empty"
    assert len(one.requests_of(FindCoordinatorRequest)) == 1 and len(one.requests_of(DescribeGroupsRequest)) == 3


@pytest.mark.parametrize("code", [0, 29])
def test_list_groups_fails_if_one_broker_fails(code: int, network: ScriptedNetwork) -> None:
    def listing(code: int, *names: str) -> ListGroupsResponse:
        item_class = ListGroupsResponse.ListedGroup
        listed = [item_class(group_id=name, protocol_type="", group_state="", group_type="") for name in names]
        return ListGroupsResponse(error_code=code, groups=listed)

    one, two = brokers(network, metadata(TWO))
    one.does[ListGroupsRequest] = in_turn(listing(0, "c", "a"))
    two.does[ListGroupsRequest] = in_turn(listing(15), listing(code, "b", "a"))
    found, _ = run(network, lambda admin: admin.list_groups())
    if code:
        assert isinstance(found, KafkaError) and found.code == code
    else:
        assert [group.group for group in found] == ["a", "b", "c"]


# Configs of brokers that can only replace all configs


def test_sensitive_config_is_never_dropped_by_a_replacement(network: ScriptedNetwork) -> None:
    versions = {MetadataRequest: "0-5", DescribeConfigsRequest: "0-1", AlterConfigsRequest: "0-0"}
    one = network.broker(versions=versions)
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult

    def described(request: Any) -> DescribeConfigsResponse:
        facts = {"read_only": False, "config_source": 2, "synonyms": []}
        configs = [
            entry(name="secret", value=None, is_sensitive=True, **facts),
            entry(name="set", value="1", is_sensitive=False, **facts),
        ]
        return DescribeConfigsResponse(
            results=[
                result(error_code=0, error_message=None, resource_type=4, resource_name="1", configs=configs)
                for _ in request.resources
            ]
        )

    def altered(request: Any) -> AlterConfigsResponse:
        one_ = AlterConfigsResponse.AlterConfigsResourceResponse
        return AlterConfigsResponse(
            responses=[one_(error_code=0, error_message=None, resource_type=4, resource_name="1")]
        )

    one.does[MetadataRequest] = in_turn(metadata({1: ("one", 9092)}))
    one.does[DescribeConfigsRequest], one.does[AlterConfigsRequest] = in_turn(described), in_turn(altered)
    broker = ConfigResource.broker(1)

    async def call(admin: Admin) -> Any:
        return [await admin.alter_configs({broker: {"set": "2"}}), await admin.alter_configs({broker: {"secret": "x"}})]

    (refused, done), _ = run(network, call)
    assert isinstance(refused[broker], InvalidRequest) and "secret" in str(refused[broker])
    assert done == {broker: None}
    (heard,) = one.requests_of(AlterConfigsRequest)
    assert {config.name: config.value for config in heard.request.resources[0].configs} == {"set": "1", "secret": "x"}


def test_unknown_node_is_looked_up_in_new_metadata(network: ScriptedNetwork) -> None:
    brokers(network, metadata(TWO))
    found, _ = run(network, lambda admin: admin.describe_log_dirs([9], timeout_s=1))
    assert isinstance(found[9], ConnectionLost)
