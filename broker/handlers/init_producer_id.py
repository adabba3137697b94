"""InitProducerId v0-v5: a producer id for idempotent writing, or the ownership of a transactional id (KIP-98).

v3 names the present producer id and epoch, so that a producer recovers from an error (KIP-360). Before v4 a fenced
producer is told INVALID_PRODUCER_EPOCH (KIP-588). Asks for WRITE on the transactional id; without one for
IDEMPOTENT_WRITE on the cluster, or WRITE on any topic where the release takes that for enough. Left out: two-phase
commit (v6, KIP-939), which no release has made stable.
"""

from __future__ import annotations

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..context import RequestContext, handles
from ..errors import Refused, code_of
from ..transactions.codes import known, settled
from ..transactions.state import Answer

FENCED_SINCE = 4


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Without a transactional id a fresh id with epoch 0; an id and epoch that came along are ignored, as in Kafka."""
    try:
        _check_allowed(request, context)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise Refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            answer = Answer(ErrorCode.NONE, context.broker.producer_ids.allocate(context.now_ms()), 0)
        else:
            answer = await settled(
                context.transactions.init_producer_id(
                    request.transactional_id,
                    timeout_ms=request.transaction_timeout_ms,
                    producer_id=request.producer_id,
                    producer_epoch=request.producer_epoch,
                )
            )
    except Exception as error:
        answer = Answer(code_of(error))
    return InitProducerIdResponse(
        error_code=known(answer.error, fenced=context.api_version >= FENCED_SINCE),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def _check_allowed(request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        context.check_allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return
    by_topic = not context.broker.profile.behaviour.idempotence_of_cluster
    if not (by_topic and context.allowed_any(AclOperation.WRITE, ResourceType.TOPIC)):
        context.check_allowed(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
