"""CreatePartitions v0-v3 (KIP-195). Asks for ALTER on each topic."""

from __future__ import annotations

from collections import Counter

from ...protocol.acls import AclOperation, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..nodes import Nodes
from ..topics import PARTITIONS_AT_ONCE_MAX, Topic
from .create_topics import check_assignments

Asked = CreatePartitionsRequest.CreatePartitionsTopic
Result = CreatePartitionsResponse.CreatePartitionsTopicResult
STRICT_FROM = 3  # the first version that a quota of mutations refuses


@handles(CreatePartitionsRequest)
async def create_partitions(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    """Each topic on its own; names that are listed twice are refused."""
    counts = Counter(asked.name for asked in request.topics)
    results = []
    for name in counts:
        asked = next(asked for asked in request.topics if asked.name == name)
        try:
            if counts[name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if not context.allowed(AclOperation.ALTER, ResourceType.TOPIC, name):
                results.append(_refused(name, context))
                continue
            topic = context.broker.topics.named(name)
            replicas = _checked(topic, asked, context.broker.nodes)
            added = asked.count - len(topic.partitions)
            context.mutates(added, strict_from=STRICT_FROM, validate_only=request.validate_only)
            if not request.validate_only:
                context.broker.topics.add_partitions(topic, asked.count, context.now_ms(), replicas)
        except Exception as error:
            message = message_of(error)
            results.append(Result(name=name, error_code=code_of(error), error_message=message))
        else:
            results.append(Result(name=name, error_code=0))
    return CreatePartitionsResponse(results=results)


def _refused(name: str, context: RequestContext) -> Result:
    """The controller of ZooKeeper's releases has words for it, KRaft's has none."""
    has_words = context.broker.profile.behaviour.refusal_texts != "alter"
    message = "The topic authorization is failed." if has_words else None
    return Result(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=message)


def _checked(topic: Topic, asked: Asked, nodes: Nodes) -> list[list[int]] | None:
    """The new partitions' replicas where they are assigned by hand."""
    now = len(topic.partitions)
    if asked.count <= now:
        problem = "which is the number it has" if asked.count == now else f"which is lower than the {now} it has"
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"The topic {topic.name} would have {asked.count} partition(s), {problem}."
        )
    if asked.count - now > PARTITIONS_AT_ONCE_MAX:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"A request creates at most {PARTITIONS_AT_ONCE_MAX} partitions.")
    if asked.assignments is None:
        return None
    if len(asked.assignments) != asked.count - now:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{asked.count - now} partition(s) are added, but {len(asked.assignments)} assignment(s) were given.",
        )
    replicas = [given.broker_ids for given in asked.assignments]
    factor = len(topic.partitions[0].replicas) if topic.partitions else None
    check_assignments(dict(enumerate(replicas, now)), now, asked.count - now, nodes, factor)
    return replicas
