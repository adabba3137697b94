"""Supported and finalized features of the cluster (KIP-584).

Owns the one feature with a variable level: `transaction.version` (KIP-890), if the release has it and serves the API
versions for it. A change is a FeatureLevelRecord, durable before it is visible. `metadata.version`, the first record of
the metadata log, is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from ...protocol.api_key import ApiKey
from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import FeatureLevelRecord
from ..errors import Refused

if TYPE_CHECKING:
    from ..releases.served_apis import Apis
    from .log import MetadataLog

TRANSACTION_VERSION = "transaction.version"
NEWEST_TRANSACTION_VERSION = 2
OWN_EPOCH_SINCE = 5  # version of EndTxn in which each transaction has its own epoch
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

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


class Features:
    """The supported features and their finalized levels."""

    def __init__(self, metadata: MetadataLog, node_id: int, transaction_version: int, apis: Apis) -> None:
        """`transaction_version` is the level of the release profile, in effect until a record sets another one."""
        self._metadata = metadata
        self._node_id = node_id
        self.transaction_version = transaction_version
        """The level in effect, whether or not it is reported to clients."""
        ends = apis.advertised.get(ApiKey.END_TXN)
        self.supported: dict[str, Range] = {}
        """Levels by name, of the features that can be finalized."""
        if transaction_version > 0 and ends is not None and OWN_EPOCH_SINCE in ends:
            self.supported[TRANSACTION_VERSION] = Range(0, NEWEST_TRANSACTION_VERSION)
        self.epoch = 0
        """Epoch of the finalized features; clients use the highest one that they have seen."""

    @property
    def finalized(self) -> dict[str, int]:
        """Levels by name, of the finalized features."""
        level = self.transaction_version
        return {TRANSACTION_VERSION: level} if level and TRANSACTION_VERSION in self.supported else {}

    def replay(self, record: FeatureLevelRecord) -> None:
        """Applies a record. A level that this profile does not support is ignored, so that the log stays readable."""
        known = self.supported.get(record.name)
        if known is not None and known.first <= record.feature_level <= known.last:
            self.transaction_version = record.feature_level
            self.epoch += 1

    def continue_after(self, earlier: Features) -> None:
        """Continues after another state, whose epoch clients may have seen."""
        self.epoch = max(self.epoch, earlier.epoch + 1) if earlier.epoch or self.epoch else 0

    def judged(self, update: Update, judge: Judges) -> Refused | None:
        """Returns why a feature cannot be changed this way, or None. `judge` selects Kafka's rules."""
        problem = self._problem_with_zookeeper if judge == "zookeeper" else self._problem
        return problem(update, judge)

    def change(self, updates: Sequence[Update], now_ms: int) -> bool:
        """Finalizes features that `judged` accepted; returns whether any level changed. Raises StorageError."""
        levels = {update.feature: update.level for update in updates if update.feature in self.supported}
        changed = {name: level for name, level in levels.items() if level != self.finalized.get(name, 0)}
        if not changed:
            return False
        records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in changed.items()]
        self._metadata.append(records, now_ms)
        for record in records:
            self.replay(record)
        return True

    def _problem(self, update: Update, judge: Judges) -> Refused | None:
        """Checks an update like a KRaft controller."""
        name, level, kind, _ = update
        known = self.supported.get(name, Range(0, 0))
        now = self.finalized.get(name, 0)
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
        elif judge == "whole" and name not in self.supported:
            reason = f"Feature {name} not found."
        if reason is None:
            return None
        return Refused(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")

    @staticmethod
    def _problem_with_zookeeper(update: Update, _: Judges) -> Refused:
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
