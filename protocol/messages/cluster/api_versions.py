"""ApiVersions: request and response of API key 18. KIP-35, KIP-511, KIP-584, KIP-1242."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsRequest:
    """Requests the supported APIs and versions. v3 is flexible and carries the client library's name and version
    (KIP-511); v5 names the node that the client expects (KIP-1242)."""

    client_software_name: Text = field("3+", default="", ignorable=True)
    client_software_version: Text = field("3+", default="", ignorable=True)
    cluster_id: Text | None = field("5+", default=None, ignorable=True)
    node_id: Int32 = field("5+", default=-1, ignorable=True)


@message(api_key=18, versions="0-5", flexible="3+")
class ApiVersionsResponse:
    """Supported version ranges. v3 adds features (KIP-584); v4 allows features with a minimum level of 0. Its header is
    always v0."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", default=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", default=list, tag=2, ignorable=True)
    zk_migration_ready: Bool = field("3+", default=False, tag=3, ignorable=True)

    @group
    class ApiVersion:
        api_key: Int16
        min_version: Int16
        max_version: Int16

    @group
    class SupportedFeatureKey:
        name: Text
        min_version: Int16
        max_version: Int16

    @group
    class FinalizedFeatureKey:
        name: Text
        max_version_level: Int16
        min_version_level: Int16
