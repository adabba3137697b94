"""Cases of `test_apis.py` for access control lists."""

from __future__ import annotations

from ottla.broker.config.java_classes import AuthorizerSettings
from ottla.broker.security.standard import StandardAuthorizer
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla_testing.broker.api_cases import World, case

KEYS = {29, 30, 31}
ENTRY = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
FILTER = {
    "resource_type_filter": 2, "resource_name_filter": "t", "principal_filter": None, "host_filter": None,
    "operation": 1, "permission_type": 1,
}  # fmt: skip


async def created(world: World, version: int) -> CreateAclsRequest:
    state = world.broker.state
    state.authorizer = StandardAuthorizer(state.acls, AuthorizerSettings(frozenset({"User:ANONYMOUS"})))
    request = CreateAclsRequest(
        creations=[CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", **ENTRY)] * 2
    )
    response = await world.client.call(request, version)
    assert [(result.error_code, result.error_message) for result in response.results] == [(0, "")] * 2
    return request


@case(CreateAclsRequest)
async def creates_acls(world: World, version: int) -> None:
    await created(world, version)
    (acl,) = world.broker.state.acls
    assert acl == (2, "t", 3, "User:a", "*", 3, 3)


@case(DescribeAclsRequest)
async def describes_acls(world: World, version: int) -> None:
    await created(world, version)
    response = await world.client.call(DescribeAclsRequest(**FILTER), version)
    (resource,) = response.resources
    assert (response.error_code, response.error_message) == (0, "")
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "t", 3)
    (acl,) = resource.acls
    assert {name: getattr(acl, name) for name in ENTRY} == ENTRY


@case(DeleteAclsRequest)
async def deletes_acls(world: World, version: int) -> None:
    await created(world, version)
    response = await world.client.call(
        DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**FILTER)]), version
    )
    (result,) = response.filter_results
    (acl,) = result.matching_acls
    assert (result.error_code, result.error_message, acl.error_code) == (0, None, 0)
    assert {name: getattr(acl, name) for name in ENTRY} == ENTRY and acl.resource_name == "t"
    assert not len(world.broker.state.acls)
