"""AlterUserScramCredentials v0: removes and sets SCRAM credentials (KIP-554). Asks for ALTER on the cluster.

They are stored, and nothing authenticates with them: there is no SASL yet.
"""

from __future__ import annotations

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ...storage.errors import StorageError
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of

Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Each user on their own; what fails as a whole is told of each, the answer having no other place for it."""
    broker = context.broker
    try:
        context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
        once = broker.profile.behaviour.scram_once_a_user
        answers = broker.scram.alter(request.deletions, request.upsertions, context.now_ms(), once_a_user=once)
    except (Refused, StorageError) as error:
        code, message = code_of(error), message_of(error)
        users = sorted({change.name for change in (*request.deletions, *request.upsertions)})
        results = [Result(user=user, error_code=code, error_message=message) for user in users]
    else:
        results = [
            Result(user=user, error_code=refused.code if refused else 0, error_message=refused and refused.message)
            for user, refused in answers.items()
        ]
    for result in results:
        result.error_message = result.error_message or None
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
