"""The reason why a request is not served: the name of the API, the versions that are served, and advice for the
client.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.schema import Versions
from ..releases.profiles import INTER_BROKER_KEYS, RELEASES, TELEMETRY_KEYS, Profile, api_names, profile

INTER_BROKER = "between brokers and controllers"


def why_not_served(api_key: int) -> str | None:
    """Returns the reason why an API that a release advertises is not served, or None."""
    return INTER_BROKER if api_key in INTER_BROKER_KEYS else None


def unserved_text(api_key: int, api_version: int, served: Mapping[int, Versions], played: Profile) -> str:
    """Returns one line about a request that is not served, for logs and for users who look at requests."""
    name = api_names().get(api_key)
    if name is None:
        return f"API key {api_key} is not served: no release of Kafka has it"
    if (versions := served.get(api_key)) is not None:
        shown = f"v{versions.first}" if versions.first == versions.last else f"v{versions.first} to v{versions.last}"
        return f"{name} v{api_version} is not served, but {shown}"
    text = f"{name} (API key {api_key}) is not served"
    if api_key in INTER_BROKER_KEYS:
        return f"{text}: {INTER_BROKER}; clients do not need it"
    if api_key in TELEMETRY_KEYS and api_key in played.telemetry_apis:
        return f"{text}: it needs the config ottla.client.telemetry=true"
    having = [release for release in RELEASES if api_key in profile(release).apis_of_kafka]
    return f"{text}: release {played.name} does not have it, but {having[0]} to {having[-1]}"
