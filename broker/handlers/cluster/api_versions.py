"""ApiVersions v0-v5: the served APIs and versions (KIP-35, KIP-511, KIP-584).

A v5 request may name the cluster and the node that its client expects. With another one the response is
REBOOTSTRAP_REQUIRED, so that the client resolves its bootstrap addresses again (KIP-1242).

Features are those of `features.py`. Ottla's own profile adds one: the duplicate scan below the cached batches, which
allows a producer more requests in flight than batches are cached. The router responds to higher versions.
"""

from __future__ import annotations

import re

from ....protocol.errors import ErrorCode
from ....protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...context import RequestContext, handles

# KIP-511: the pattern of a client's software name and version.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

Feature = ApiVersionsResponse.SupportedFeatureKey
Finalized = ApiVersionsResponse.FinalizedFeatureKey
DUPLICATE_SCAN = "ottla.duplicate.scan"
EXPECTED_NODE_SINCE = 5
NO_NODE = -1
LEAST_LEVEL_0_SINCE = 4  # clients before v4 cannot read a feature whose lowest level is 0 (KAFKA-17011)


@handles(ApiVersionsRequest)
async def api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """Returns the table of the broker's profile."""
    refused = _refusal(request, context)
    if refused is not ErrorCode.NONE:
        return ApiVersionsResponse(error_code=refused, api_keys=[])
    connection_info = context.connection_info
    if connection_info.sasl is not None:
        connection_info.sasl.versions_served()
    connection_info.library = context.broker.clients.note_api_versions(
        connection_info.library,
        context.client_id,
        context.api_version,
        request.client_software_name,
        request.client_software_version,
    )
    if (principal := connection_info.known_principal) is not None:  # by its certificate
        context.broker.clients.note_principal(connection_info.library, context.client_id, principal)
    features = context.broker.features
    finalized = [
        Finalized(name=name, max_version_level=level, min_version_level=level)
        for name, level in features.finalized.items()
    ]
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=versions.first, max_version=versions.last)
            for key, versions in context.broker.apis.advertised.items()
        ],
        supported_features=_supported(context),
        finalized_features=finalized,
        finalized_features_epoch=features.epoch if features.supported else -1,
    )


def _refusal(request: ApiVersionsRequest, context: RequestContext) -> ErrorCode:
    names = request.client_software_name, request.client_software_version
    expects = context.api_version >= EXPECTED_NODE_SINCE
    if expects and (request.cluster_id is None) != (request.node_id == NO_NODE):
        return ErrorCode.INVALID_REQUEST
    if context.api_version >= 3 and not all(map(_SOFTWARE.fullmatch, names)):
        return ErrorCode.INVALID_REQUEST
    here = context.broker.cluster_id, context.node_id
    if expects and request.cluster_id is not None and (request.cluster_id, request.node_id) != here:
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


def _supported(context: RequestContext) -> list[Feature]:
    """The features of the release. The duplicate scan is our own: the profile of a release has exactly its features."""
    found: list[Feature] = []
    config = context.broker.config
    scans = config.profile.is_own and config.profile.behaviour.below_cache == "duplicate_sequence"
    if scans and config["producer.duplicate.scan.bytes"] > 0:
        found.append(Feature(name=DUPLICATE_SCAN, min_version=1, max_version=1))
    for name, (first, last) in context.broker.features.supported.items():
        if first > 0 or context.api_version >= LEAST_LEVEL_0_SINCE:
            found.append(Feature(name=name, min_version=first, max_version=last))
    return found
