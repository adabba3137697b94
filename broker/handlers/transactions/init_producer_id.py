"""InitProducerId v0-v6: a producer id for idempotent writes, or the ownership of a transactional id (KIP-98).

v3 has the present producer id and epoch, so that a producer recovers from an error (KIP-360). Before v4 a fenced
producer gets INVALID_PRODUCER_EPOCH (KIP-588). Requires WRITE on the transactional id; without one, IDEMPOTENT_WRITE on
the cluster, or WRITE on any topic where the release accepts that. v6 (KIP-939), with `unstable.api.versions.enable`
only, has two-phase commit: it requires TWO_PHASE_COMMIT on the transactional id, and
`transaction.two.phase.commit.enable`. The transaction then has no timeout. A prepared transaction cannot be kept: no
release of Kafka does that, and the fields of an ongoing transaction in the response are always -1.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...futures import settled
from ...transactions.state import Response
from . import known

FENCED_SINCE = 4
RECOVERS_SINCE = 3  # KIP-360
JAVA_CLIENT = "apache-kafka-java"  # the name in ApiVersions from 2.4 on


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Returns a producer id. Without a transactional id it is a new one with epoch 0; an id and epoch in the request
    are ignored, as in Kafka.
    """
    try:
        _check_allowed(request, context)
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise Refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is None:
            response = Response(ErrorCode.NONE, context.broker.producer_ids.allocate(context.now_ms()), 0)
        else:
            response = await settled(
                context.transactions.init_producer_id(
                    request.transactional_id,
                    timeout_ms=request.transaction_timeout_ms,
                    producer_id=request.producer_id,
                    producer_epoch=request.producer_epoch,
                    two_phase=request.enable2_pc,
                    keep_prepared=request.keep_prepared_txn,
                )
            )
        if response.error is ErrorCode.NONE and context.broker.profile.behaviour.unknown_below_log_start:
            context.broker.comparing_producers.note(response.producer_id, _compares(request, context))
    except Exception as error:
        response = Response(code_of(error))
    return InitProducerIdResponse(
        error_code=known(response.error, fenced=context.api_version >= FENCED_SINCE),
        producer_id=response.producer_id,
        producer_epoch=response.producer_epoch,
    )


def _compares(request: InitProducerIdRequest, context: RequestContext) -> bool:
    """Returns whether a client compares the log start offset in Produce responses with its last acknowledged offset
    (KIP-192).

    Only two kinds are known to: clients that request the fields of KIP-192 in Metadata, and Apache's Java client before
    KIP-360. Java clients before 2.4 do not name their library, and send the same versions as clients that do not
    compare: aiokafka and kafkajs fail at UNKNOWN_PRODUCER_ID. Within a transaction the error aborts
    the transaction in other clients too.
    """
    library = context.connection_info.library
    is_old_java = library.software_name == JAVA_CLIENT and context.api_version < RECOVERS_SINCE
    return request.transactional_id is None and (library.requests_formats or is_old_java)


def _check_allowed(request: InitProducerIdRequest, context: RequestContext) -> None:
    if request.transactional_id is not None:
        context.check_allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if request.enable2_pc:
            context.check_allowed(
                AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, request.transactional_id
            )
        return
    by_topic = not context.broker.profile.behaviour.idempotence_of_cluster
    if not (by_topic and context.allowed_any(AclOperation.WRITE, ResourceType.TOPIC)):
        context.check_allowed(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
