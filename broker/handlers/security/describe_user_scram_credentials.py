"""DescribeUserScramCredentials v0: the SCRAM credentials of users (KIP-554). Requires DESCRIBE on the cluster."""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ...context import RequestContext, handles
from ...security.scram import NO_NAME

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult

TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
NOT_THERE = "Attempt to describe a user credential that does not exist: "


@handles(DescribeUserScramCredentialsRequest)
async def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """Describes each requested user once, in the order of the request, or all users by name."""
    if not context.allowed(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return _refused(len(request.users or ()))
    requested = Counter(user.name for user in request.users or ())
    users = requested or dict.fromkeys(context.broker.scram.users, 1)
    results = await context.mapped(lambda user: _described(user, users[user], context), list(users))
    return DescribeUserScramCredentialsResponse(throttle_time_ms=0, error_code=0, error_message="", results=results)


def _refused(count: int) -> DescribeUserScramCredentialsResponse:
    """Returns the response to a client without the right: as in Kafka, with a result without a name for each user."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    results = [Result(user="", error_code=code, error_message=None, credential_infos=[]) for _ in range(count)]
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, results=results
    )


def _described(user: str, times: int, context: RequestContext) -> Result:
    credentials = context.broker.scram.of(user)
    code, message = ErrorCode.NONE, ""
    if not user and not context.broker.profile.behaviour.scram_once_a_user:  # ZooKeeper brokers check the name first
        code, message = ErrorCode.RESOURCE_NOT_FOUND, NO_NAME
    elif times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, TWICE + user
    elif not credentials:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE + user
    infos = [
        Result.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in credentials.items()
    ]
    return Result(user=user, error_code=code, error_message=message, credential_infos=[] if code else infos)
