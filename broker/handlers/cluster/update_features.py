"""UpdateFeatures v0-v2: changes the finalised levels of features (KIP-584, KIP-778). Requires ALTER on the cluster.

The features, their levels and the rules are those of the release, see `features.py`.
"""

from __future__ import annotations

from operator import itemgetter

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
    """Updates features. Up to Kafka 3.9 each feature has a result of its own; from 4.0 on all succeed or none."""
    context.check_allowed(AclOperation.ALTER, ResourceType.CLUSTER)
    broker = context.broker
    judge = broker.profile.behaviour.feature_results
    updates = await context.mapped(
        lambda one: Update(one.feature, one.max_version_level, one.upgrade_type, one.allow_downgrade),
        request.feature_updates,
    )
    wanted = {update.feature: update for update in updates}  # the last of several updates of a feature counts
    judged = await context.mapped(lambda update: broker.features.judged(update, judge, wanted), list(wanted.values()))
    verdicts = dict(zip(wanted, judged, strict=True))
    refused = next((verdict for verdict in verdicts.values() if verdict is not None), None)
    if judge == "whole" and refused is not None:
        return _response(refused.code, FAILED + refused.message, [])
    if not request.validate_only:
        broker.finalize([update for update in updates if verdicts[update.feature] is None], context.now_ms())
    if judge == "whole":
        # As in Kafka, by mistake: the name of the code in place of an empty message.
        results = [Result(feature=update.feature, error_code=0, error_message="NONE") for update in updates]
        return _response(0, None, results if context.api_version <= RESULTS_UNTIL else [])
    # Sorted by name, as KRaft controllers return them.
    results = await context.mapped(_result, sorted(verdicts.items(), key=itemgetter(0)))
    return _response(0, "" if judge == "each" else None, results)


def _response(code: int, message: str | None, results: list[Result]) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(throttle_time_ms=0, error_code=code, error_message=message, results=results)


def _result(verdict: tuple[str, Refused | None]) -> Result:
    name, refused = verdict
    if refused is None:
        return Result(feature=name, error_code=0, error_message=None)
    return Result(feature=name, error_code=refused.code, error_message=refused.message)
