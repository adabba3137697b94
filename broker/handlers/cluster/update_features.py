"""UpdateFeatures v0-v2: finalises features at other levels (KIP-584, KIP-778). Asks for ALTER on the cluster.

`transaction.version` can change where the release has it, see `features.py`. All others are refused as features that
the controller does not support, among them `metadata.version`: in which form the metadata are written is not a choice.
"""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.messages.cluster.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ...context import RequestContext, handles
from ...errors import Refused
from ...metadata.features import Update

Result = UpdateFeaturesResponse.UpdatableFeatureResult
RESULTS_UNTIL = 1
FAILED = "The update failed for all features since the following feature had an error: "


@handles(UpdateFeaturesRequest)
async def update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Up to Kafka 3.9 each feature has its own answer; from 4.0 on all are done or none."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    broker = context.broker
    judge = broker.profile.behaviour.feature_answers
    updates = await context.mapped(
        lambda one: Update(one.feature, one.max_version_level, one.upgrade_type, one.allow_downgrade),
        request.feature_updates,
    )
    wanted = {update.feature: update for update in updates}  # of several for one feature the last one counts
    judged = await context.mapped(lambda update: broker.features.judged(update, judge), list(wanted.values()))
    answers = dict(zip(wanted, judged, strict=True))
    refused = next((answer for answer in answers.values() if answer is not None), None)
    if judge == "whole" and refused is not None:
        return _answer(refused.code, FAILED + refused.message, [])
    if not request.validate_only:
        broker.finalize([update for update in updates if answers[update.feature] is None], context.now_ms())
    if judge == "whole":
        # Kafka's own slip: the name of the code where there is no text.
        results = [Result(feature=update.feature, error_code=0, error_message="NONE") for update in updates]
        return _answer(0, None, results if context.api_version <= RESULTS_UNTIL else [])
    # By name, as KRaft controllers have them.
    return _answer(
        0, "" if judge == "each" else None, await context.mapped(_result, sorted(answers.items(), key=_name))
    )


def _answer(code: int, message: str | None, results: list[Result]) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=code, error_message=message, results=results)


def _name(answer: tuple[str, Refused | None]) -> str:
    return answer[0]


def _result(answer: tuple[str, Refused | None]) -> Result:
    name, refused = answer
    if refused is None:
        return Result(feature=name, error_code=0, error_message=None)
    return Result(feature=name, error_code=refused.code, error_message=refused.message)
