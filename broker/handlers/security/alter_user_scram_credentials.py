"""AlterUserScramCredentials v0: removes and sets SCRAM credentials (KIP-554). Requires ALTER on the cluster.

They take effect with the next authentication; connections stay.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ....storage.errors import StorageError
from ...context import RequestContext, handles
from ...errors import Refused, code_of, message_of

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
SURPRISED = "The server experienced an unexpected error when processing the request."


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
        results = [Result(user=user, error_code=code, error_message=message) for user in users]
    else:
        # A KRaft controller returns null for an empty message, a ZooKeeper broker an empty string.
        done, surprised = (None, None) if once else ("", SURPRISED)

        def result(outcome: tuple[str, Refused | None]) -> Result:
            user, refused = outcome
            if refused is None:
                return Result(user=user, error_code=0, error_message=done)
            return Result(user=user, error_code=refused.code, error_message=refused.message or surprised)

        results = await context.mapped(result, list(outcomes.items()))
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
