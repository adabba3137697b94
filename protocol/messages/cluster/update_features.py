"""UpdateFeatures: request and response of API key 57. KIP-584, KIP-778 (v1: kinds of upgrade, dry run)."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import field, group, message


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    """Sets the finalized levels of features. Upgrade types: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field("1+", default=False)

    @group
    class FeatureUpdateKey:
        feature: Text
        max_version_level: Int16
        allow_downgrade: Bool = field("0", default=False)
        upgrade_type: Int8 = field("1+", default=1)


@message(api_key=57, versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    """The error of the request; up to v1 also one per feature."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: Text | None
    results: list[UpdatableFeatureResult] = field("0-1", default=list, ignorable=True)

    @group
    class UpdatableFeatureResult:
        feature: Text
        error_code: Int16
        error_message: Text | None
