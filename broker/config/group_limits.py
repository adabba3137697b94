"""The limits of the settings of groups in the broker configs: `group.KIND.min.SETTING` and `group.KIND.max.SETTING`.

The configs of a group are checked against them in `named_rules.py`, the broker's own settings here, at the start. From
4.3 on the limits hold as well for configs that a group has from before, see `in_limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError

KINDS = ("consumer", "share", "streams")
_OF_ALL = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
_OF_SHARE = ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms")
# Settings whose limits have other names, and no minimum.
_OTHER_NAMES = {
    "streams.num.standby.replicas": "streams.{}.standby.replicas",
    "streams.num.warmup.replicas": "streams.{}.warmup.replicas",
}
_ONLY_A_MINIMUM = "streams.task.offset.interval.ms"
LIMITED = (
    *(f"{kind}.{rest}" for kind in KINDS for rest in _OF_ALL),
    *(f"share.{rest}" for rest in _OF_SHARE),
    *_OTHER_NAMES,
    _ONLY_A_MINIMUM,
)
"""The settings with limits, as configs of a group; the broker's own begin with `group.`."""


def limits_of(setting: str) -> tuple[str, str]:
    """Returns the names of the broker configs with the limits of a setting, such as `share.session.timeout.ms`."""
    kind, _, rest = setting.partition(".")
    pattern = "group." + _OTHER_NAMES.get(setting, f"{kind}.{{}}.{rest}")
    return pattern.format("min"), pattern.format("max")


LIMITS: dict[str, str] = {
    name: f"The {word} value of {setting} of a group, and of group.{setting}."
    for setting in LIMITED
    for word, name in zip(("smallest", "largest"), limits_of(setting), strict=True)
    if not (word == "smallest" and setting in _OTHER_NAMES) and not (word == "largest" and setting == _ONLY_A_MINIMUM)
}
"""The documentation of the limits, by their names."""


def in_limits(setting: str, value: int, get: Callable[[str], Any]) -> int:
    """Returns the value of a setting of a group that is in effect: one that was set within other limits than the
    broker's of today is replaced by the limit that it is beyond. `get` returns the value of a config, None for one
    that the release does not have.
    """
    low, high = map(get, limits_of(setting))
    if low is not None and value < low:
        return low
    return high if high is not None and value > high else value


def capped(configs: Mapping[str, str], get: Callable[[str], Any]) -> Mapping[str, str]:
    """Returns the configs of a group that are in effect, see `in_limits`."""
    return {
        name: str(in_limits(name, int(value), get)) if name in LIMITED else value for name, value in configs.items()
    }


def check_group_limits(get: Callable[[str], Any]) -> None:
    """Checks the settings of the broker; `get` is that of `in_limits`. Raises ConfigError."""
    for setting in LIMITED:
        low, high = limits_of(setting)
        _check_order(get, low, high)
        _check_order(get, low, f"group.{setting}")
        _check_order(get, f"group.{setting}", high)
    for kind in KINDS:
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        values = get(heartbeat), get(session)
        if None not in values and values[0] >= values[1]:
            raise ConfigError(f"{heartbeat} must be less than {session}")
    _check_order(get, "group.share.max.size", "group.share.max.share.sessions")


def _check_order(get: Callable[[str], Any], smaller: str, larger: str) -> None:
    values = get(smaller), get(larger)
    if None not in values and values[0] > values[1]:
        raise ConfigError(f"{larger} ({values[1]}) must be greater than or equal to {smaller} ({values[0]})")
