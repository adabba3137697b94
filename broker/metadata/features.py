"""Supported and finalized features of the cluster (KIP-584, KIP-778, KIP-1022).

Owns the levels of all features of the release, and the rules of a controller for their changes. A change is a
FeatureLevelRecord, durable before it is visible. A feature without a record has the level of a new cluster of the
release, so a directory can be used as one release and as another.

`transaction.version` (KIP-890), `group.version` (KIP-848), `eligible.leader.replicas.version` (KIP-966),
`share.version` (KIP-932), `streams.version` (KIP-1071) and `metadata.version` have effects; the level of
`kraft.version` is stored and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import FeatureLevelRecord
from ...protocol.named import NamedTuple
from ..errors import Refused
from ..releases.profiles import (
    ELIGIBLE_LEADERS,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)

if TYPE_CHECKING:
    from ..releases.profiles import Apis, FeatureLevels, Profile
    from .log import MetadataLog

OWN_EPOCH_SINCE = 5  # version of EndTxn in which each transaction has its own epoch
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
# Levels of metadata.version: 3.5-IV2 and 3.6-IV2 (KIP-900), 4.3-IV0 (KIP-1066), 4.4-IV1, 4.4-IV2.
SCRAM_SINCE, TOKENS_SINCE, CORDONED_SINCE, CIDR_HOSTS_SINCE, CONTROLLERS_LEAVE_SINCE = 11, 14, 30, 32, 33
FIRST_BOOTSTRAP, FIRST_BOOTSTRAP_NAME = 4, "3.3-IV0"  # releases before 4.0 refuse lower levels of metadata.version
# Levels of metadata.version that changed the format of records: a downgrade below one of them would lose metadata.
CHANGED_METADATA = frozenset({1, 3, 5, 6, 7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
DEPENDENCIES = {(ELIGIBLE_LEADERS, 1): (METADATA_VERSION, 23)}  # 4.0-IV1
LOSSY = "Refusing to perform the requested downgrade because it might delete metadata information."
LOSSY_BUT = f"{LOSSY} Retry using UNSAFE_DOWNGRADE if you want to force the downgrade to proceed."
UNSAFE = "Unsafe metadata downgrade is not supported in this version."

Judges = Literal["zookeeper", "each", "whole"]


class Range(NamedTuple):
    """Levels at which a feature can be finalized; 0 means not finalized."""

    first: int
    last: int


class Update(NamedTuple):
    """A requested change of a feature's level; `kind` is UPGRADE, SAFE_DOWNGRADE or UNSAFE_DOWNGRADE.

    `allow_downgrade` replaces the kind in v0; KRaft controllers ignore it.
    """

    feature: str
    level: int
    kind: int
    allow_downgrade: bool = False


def supported_features(profile: Profile, apis: Apis, *, unstable: bool) -> dict[str, Range]:
    """Returns the levels by name of the features that can be finalized, with `unstable` including the unstable ones.

    `transaction.version` is left out if a config has disabled it, or if the API versions for it are not served.
    """
    found = {name: Range(*levels) for name, levels in profile.feature_ranges(unstable=unstable).items()}
    ends = apis.advertised.get(ApiKey.END_TXN)
    if ends is None or OWN_EPOCH_SINCE not in ends or not profile.behaviour.transaction_version:
        found.pop(TRANSACTION_VERSION, None)
    return found


class Features:
    """The supported features and their finalized levels."""

    def __init__(self, metadata: MetadataLog, node_id: int, profile: Profile, apis: Apis, *, unstable: bool) -> None:
        """`unstable` supports the levels that the release has not declared stable."""
        self._metadata = metadata
        self._node_id = node_id
        self._texts = profile.behaviour.downgrade_text
        self.supported = supported_features(profile, apis, unstable=unstable)
        """Levels by name, of the features that can be finalized."""
        # At first those of a new cluster.
        self._levels = {name: levels.default for name, levels in profile.features.items()}
        self._levels[TRANSACTION_VERSION] = profile.behaviour.transaction_version
        self._levels[ELIGIBLE_LEADERS] = int(profile.behaviour.eligible_leaders)
        self.epoch = 0
        """Epoch of the finalized features; clients use the highest one that they have seen."""

    @property
    def finalized(self) -> dict[str, int]:
        """Levels by name, of the finalized features."""
        return {name: self._levels[name] for name in self.supported if self._levels[name]}

    @property
    def transaction_version(self) -> int:
        """The level in effect, whether or not it is reported to clients."""
        return self._levels[TRANSACTION_VERSION]

    @property
    def group_version(self) -> int:
        """The level of `group.version`: 1 enables the consumer group protocol (KIP-848)."""
        return self._levels.get(GROUP_VERSION, 0)

    @property
    def share_groups(self) -> bool:
        """Whether share groups are enabled (KIP-932)."""
        return self.finalized.get(SHARE_VERSION, 0) > 0

    @property
    def dead_letter_queues(self) -> bool:
        """Whether share groups may have dead-letter queues (KIP-1191)."""
        return self.finalized.get(SHARE_VERSION, 0) > 1

    @property
    def streams_groups(self) -> bool:
        """Whether streams groups are enabled (KIP-1071)."""
        return self.finalized.get(STREAMS_VERSION, 0) > 0

    @property
    def eligible_leaders(self) -> bool:
        """Whether partitions have eligible leader replicas (KIP-966)."""
        return self._levels[ELIGIBLE_LEADERS] > 0

    @property
    def stores_scram(self) -> bool:
        """Whether `metadata.version` has records of SCRAM credentials; releases before them are not restricted."""
        return self._has_metadata(SCRAM_SINCE)

    @property
    def stores_tokens(self) -> bool:
        """Whether `metadata.version` has records of delegation tokens."""
        return self._has_metadata(TOKENS_SINCE)

    @property
    def cordoned_log_dirs(self) -> bool:
        """Whether `metadata.version` has cordoned log directories (KIP-1066)."""
        return self._has_metadata(CORDONED_SINCE)

    @property
    def cidr_hosts(self) -> bool:
        """Whether `metadata.version` allows blocks of addresses as hosts of access control entries."""
        return self._has_metadata(CIDR_HOSTS_SINCE)

    @property
    def controllers_leave(self) -> bool:
        """Whether `metadata.version` has records of controllers that leave."""
        return self._has_metadata(CONTROLLERS_LEAVE_SINCE)

    def _has_metadata(self, level: int) -> bool:
        """Whether `metadata.version` has a level; true for a release that never reaches it."""
        supported = self.supported.get(METADATA_VERSION)
        return supported is None or supported.last < level or self._levels[METADATA_VERSION] >= level

    def replay(self, record: FeatureLevelRecord) -> None:
        """Applies a record. A level that this profile does not support is ignored, so that the log stays readable."""
        known = self.supported.get(record.name)
        level = record.feature_level
        if known is not None and known.first <= level <= known.last and level != self._levels[record.name]:
            self._levels[record.name] = level
            self.epoch += 1

    def continue_after(self, earlier: Features) -> None:
        """Continues after another state, whose epoch clients may have seen."""
        self.epoch = max(self.epoch, earlier.epoch + 1) if earlier.epoch or self.epoch else 0

    def judged(self, update: Update, judge: Judges, updates: Mapping[str, Update]) -> Refused | None:
        """Returns why a feature cannot be changed this way, or None. `judge` selects Kafka's rules; `updates` are all
        of the request, since a level may depend on that of another feature.
        """
        return self._problem_with_zookeeper(update) if judge == "zookeeper" else self._problem(update, judge, updates)

    def change(self, updates: Sequence[Update], also: Sequence[Any], now_ms: int) -> bool:
        """Finalizes features that `judged` accepted, and writes the records `also` with them; returns whether any level
        changed. Raises StorageError.
        """
        levels = {update.feature: update.level for update in updates if update.feature in self.supported}
        changed = {name: level for name, level in levels.items() if level != self._levels[name]}
        if not changed:
            return False
        records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in changed.items()]
        self._metadata.append([*records, *also], now_ms)
        for record in records:
            self.replay(record)
        return True

    def _problem(self, update: Update, judge: Judges, updates: Mapping[str, Update]) -> Refused | None:
        """Checks an update like a KRaft controller."""
        name, level, kind, _ = update
        known = self.supported.get(name, Range(0, 0))
        now = self._levels[name] if name in self.supported else 0
        reason = None
        if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            reason = "The controller does not support the given upgrade type."
        elif level < 0:
            reason = "A feature version cannot be less than 0."
        elif not known.first <= level <= known.last:
            what = f"only supports versions {known.first}-{known.last}"
            what = what if known.last else "does not support this feature."
            reason = f"Local controller {self._node_id} {what}"
        elif level < now and kind == UPGRADE:
            reason = (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
        elif level > now and kind != UPGRADE:
            reason = "Can't downgrade to a newer version."
        elif name == METADATA_VERSION:
            return self._problem_of_metadata(level, now, kind)
        elif name == KRAFT_VERSION and level:  # voters are fixed here
            text = f"Invalid upgrade of {name} to {level} because not all of the voters support it"
            return Refused(ErrorCode.INVALID_UPDATE_VERSION, text)
        elif judge == "whole" and name not in self.supported:
            reason = f"Feature {name} not found."
        else:
            reason = self._missing(name, level, updates)
        if reason is None:
            return None
        return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")

    def _missing(self, name: str, level: int, updates: Mapping[str, Update]) -> str | None:
        """Returns the dependency on another feature that a level lacks, or None."""
        needed = DEPENDENCIES.get((name, level))
        if needed is None:
            return None
        other, least = needed
        proposed = updates[other].level if other in updates else self._levels[other]
        if proposed >= least:
            return None
        return f"{name} could not be set to {level} because it depends on {other} level {least}"

    def _problem_of_metadata(self, level: int, now: int, kind: int) -> Refused | None:
        """Checks a change of `metadata.version` within the supported levels."""
        text = f"Invalid metadata.version {level}. "
        if level < FIRST_BOOTSTRAP:
            text += f"Unable to set a metadata.version less than {FIRST_BOOTSTRAP_NAME}"
        elif not any(level < changed <= now for changed in CHANGED_METADATA):
            return None
        else:
            if self._texts == "levels":
                text = f"Unsupported metadata.version downgrade from {now} to {level}. "
            lossy = LOSSY_BUT if self._texts == "retry" else LOSSY
            text += UNSAFE if kind == UNSAFE_DOWNGRADE else lossy
        return Refused(ErrorCode.INVALID_UPDATE_VERSION, text)

    @staticmethod
    def _problem_with_zookeeper(update: Update) -> Refused:
        """Checks an update like a controller with ZooKeeper, in whose releases there are no features."""
        if not update.feature:
            reason = "Feature name can not be empty."
        elif update.level < 1 and update.allow_downgrade:
            reason = "Can not delete non-existing finalized feature."
        elif update.level < 1:
            reason = (
                f"Can not provide maxVersionLevel: {update.level} less than 1 without setting the allowDowngrade flag "
                "to true in the request."
            )
        else:
            reason = "Could not apply finalized feature update because the provided feature is not supported."
        return Refused(ErrorCode.INVALID_REQUEST, reason)


def first_records(chosen: Mapping[str, int], profile: Profile) -> list[FeatureLevelRecord]:
    """Returns the first records of a new metadata log: the level of `metadata.version`, which Kafka requires there, and
    the `chosen` ones of other features.
    """
    known: FeatureLevels | None = profile.features.get(METADATA_VERSION)
    levels = {METADATA_VERSION: METADATA_VERSION_LEVEL if known is None else known.default} | dict(chosen)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


METADATA_VERSION_LEVEL = 21
"""The level in the directories of releases without `metadata.version`: 3.9-IV0."""
