"""SCRAM credentials (KIP-554): AlterUserScramCredentials v0 removes and sets them, DescribeUserScramCredentials v0
lists them. They require ALTER and DESCRIBE on the cluster.

Changes take effect with the next authentication; connections stay.
"""

from __future__ import annotations

from collections import Counter

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ....protocol.messages.security.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ....storage.errors import StorageError
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of
from ...security.scram import NO_NAME

Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
SURPRISED = "The server experienced an unexpected error when processing the request."
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "
NOT_THERE = "Attempt to describe a user credential that does not exist: "


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Handles each user on their own. An error of the whole request is repeated for each user: the response has no
    other field for it.
    """
    broker = context.broker
    once = broker.profile.behaviour.scram_once_a_user
    try:
        context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        if not broker.features.stores_scram:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
        alter = broker.scram.alter(request.deletions, request.upsertions, context.now_ms(), once_a_user=once)
        outcomes = await broker.scheduler.run(alter)
    except (Refused, StorageError) as error:
        code, message = code_of(error), message_of(error)
        users = sorted({change.name for change in (*request.deletions, *request.upsertions)})
        results = [Altered(user=user, error_code=code, error_message=message) for user in users]
    else:
        # A KRaft controller returns null for an empty message, a ZooKeeper broker an empty string.
        done, surprised = (None, None) if once else ("", SURPRISED)

        def result(outcome: tuple[str, Refused | None]) -> Altered:
            user, refused = outcome
            if refused is None:
                return Altered(user=user, error_code=0, error_message=done)
            return Altered(user=user, error_code=refused.code, error_message=refused.message or surprised)

        results = await context.mapped(result, list(outcomes.items()))
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


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
    results = [Described(user="", error_code=code, error_message=None, credential_infos=[]) for _ in range(count)]
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0, error_code=code, error_message=None, results=results
    )


def _described(user: str, times: int, context: RequestContext) -> Described:
    credentials = context.broker.scram.of(user)
    code, message = ErrorCode.NONE, ""
    if not user and not context.broker.profile.behaviour.scram_once_a_user:  # ZooKeeper brokers check the name first
        code, message = ErrorCode.RESOURCE_NOT_FOUND, NO_NAME
    elif times > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, TWICE + user
    elif not credentials:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE + user
    infos = [
        Described.CredentialInfo(mechanism=mechanism, iterations=credential.iterations)
        for mechanism, credential in credentials.items()
    ]
    return Described(user=user, error_code=code, error_message=message, credential_infos=[] if code else infos)
