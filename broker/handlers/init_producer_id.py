"""InitProducerId v0-v5: a producer id for idempotent writing (KIP-98).

Left out: transactions. A request with a transactional id answers TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as
FindCoordinator does: every client takes that for final.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..context import RequestContext, handles
from ..errors import Refused, code_of


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """A fresh id with epoch 0; an id and epoch that came along are ignored, as in Kafka."""
    try:
        if request.transactional_id is not None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise Refused(ErrorCode.INVALID_REQUEST)
        producer_id = context.broker.producer_ids.allocate(context.now_ms())
    except Exception as error:
        return InitProducerIdResponse(error_code=code_of(error), producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
