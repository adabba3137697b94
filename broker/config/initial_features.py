"""The levels of features in a new data directory (KIP-1022): `ottla.features`."""

from __future__ import annotations

import re

from ...protocol.names import meant, near
from ..errors import ConfigError
from .values import Config

NAME = "ottla.features"
_ENTRY = re.compile(r"([a-z.]+)=([0-9]{1,5})")


def initial_features(config: Config) -> dict[str, int]:
    """Returns the levels by name that `ottla.features` sets. Raises ConfigError for a feature that the release does not
    have, and for an unsupported level.
    """
    known = config.profile.feature_ranges(unstable=config.get("unstable.feature.versions.enable", False))
    found: dict[str, int] = {}
    for entry in config[NAME] or ():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(f"{NAME}: {entry!r} is not NAME=LEVEL")
        name, level = match[1], int(match[2])
        if name not in known:
            raise ConfigError(f"{NAME}: this release has no feature {name}{meant(near(name, known))}")
        first, last = known[name]
        if not first <= level <= last:
            raise ConfigError(f"{NAME}: {name}={level} is not supported: expected {first} to {last}")
        found[name] = level
    return found
