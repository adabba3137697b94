"""The reports of `ottla releases`: all release profiles, one of them, or the differences of two; as text or JSON.

Owns the selection and the layout. The facts come from `profiles.py` and the table of configs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from ..broker.config.definitions import facts
from ..broker.network.unserved import why_not_served
from ..broker.releases.profiles import (
    OWN,
    PROFILE_NAMES,
    TELEMETRY_KEYS,
    Profile,
    advertised_by_releases,
    api_names,
    own_profile,
    profile,
)
from ..protocol.api_key import ApiKey
from ..protocol.text import table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..protocol.schema import Versions


def api_name(api_key: int) -> str:
    """Returns the name of an API, or its key if no release has it."""
    return api_names().get(api_key, f"API key {api_key}")


def range_text(versions: Versions) -> str:
    """Returns a text such as `v3-v12`, or `v0` for a single version."""
    return f"v{versions.first}" + (f"-v{versions.last}" if versions.last > versions.first else "")


def behaviour_of(played: Profile) -> dict[str, Any]:
    """Returns name -> value of all behaviours of a profile."""
    return dataclasses.asdict(played.behaviour)


def formats_of(played: Profile) -> list[str]:
    """Returns the message formats that the profile accepts from producers."""
    newest = played.behaviour.newest_magic
    return [f"v{magic}" for magic in range(newest + 1) if played.behaviour.old_formats or magic == newest]


def overview() -> list[dict[str, Any]]:
    """Returns an entry for each profile, oldest first: versions of Produce and Fetch, formats, changed behaviours."""
    entries: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for name in PROFILE_NAMES:
        played = profile(name)
        now = behaviour_of(played)
        entries.append(
            {
                "release": name,
                "produce": list(played.served[ApiKey.PRODUCE]),
                "fetch": list(played.served[ApiKey.FETCH]),
                "formats": formats_of(played),
                "moved": {key: value for key, value in now.items() if before and before[key] != value},
            }
        )
        before = now
    return entries


def one(played: Profile) -> dict[str, Any]:
    """Returns one profile in full. An API that Ottla does not serve has only the reason."""
    names, here = api_names(), own_profile().apis
    return {
        "release": played.name,
        "protocol_version": played.protocol_version,
        "formats": formats_of(played),
        "apis": {
            names[key]: {"key": key, "advertised": list(versions), "served": list(played.served[key])}
            for key, versions in played.apis.items()
            if key in here
        },
        "not_here": {names[key]: why_not_served(key) for key in played.apis if key not in here},
        "behaviour": behaviour_of(played),
    }


def difference(old: Profile, new: Profile) -> dict[str, Any]:
    """Returns what differs between two profiles: API versions, behaviours, and configs with their defaults."""
    names = api_names()
    behaviours = behaviour_of(old), behaviour_of(new)
    report: dict[str, Any] = {"from": old.name, "to": new.name}
    report["apis"] = {
        names[key]: {"from": _ends(old.served.get(key)), "to": _ends(new.served.get(key))}
        for key in sorted({*old.served, *new.served})
        if old.served.get(key) != new.served.get(key)
    }
    report["behaviour"] = {
        name: {"from": behaviours[0][name], "to": behaviours[1][name]}
        for name in behaviours[0]
        if behaviours[0][name] != behaviours[1][name]
    }
    report["configs"] = {scope: _configs(scope, old, new) for scope in ("broker", "topic")}
    return report


def _configs(scope: str, old: Profile, new: Profile) -> dict[str, Any]:
    def shown(played: Profile) -> dict[str, str | None]:
        return {name: fact.default for name, fact in facts(scope, played.name).items() if not fact.internal}

    before, after = shown(old), shown(new)
    return {
        "gone": sorted(before.keys() - after.keys()),
        "new": sorted(after.keys() - before.keys()),
        "defaults": {
            name: {"from": before[name], "to": after[name]}
            for name in sorted(before.keys() & after.keys())
            if before[name] != after[name]
        },
    }


def _ends(versions: Versions | None) -> list[int] | None:
    return None if versions is None else list(versions)


# As text


def overview_text() -> list[str]:
    """The table of all profiles, a line each."""
    rows = [("release", "Produce", "Fetch", "formats", "changes from the release before")]
    for entry in overview():
        moved = ", ".join(f"{name}={_text(value)}" for name, value in entry["moved"].items())
        formats = "-".join(dict.fromkeys((entry["formats"][0], entry["formats"][-1])))
        rows.append((entry["release"], _range(entry["produce"]), _range(entry["fetch"]), formats, moved))
    return _aligned(rows)


def one_text(played: Profile) -> list[str]:
    """Returns the lines of one profile in full."""
    report = one(played)
    what = "Ottla's own profile" if played.is_own else f"as Kafka {played.name}"
    lines = [
        f"{played.name}: {what}",
        f"formats from producers: {', '.join(report['formats'])}",
        f"inter.broker.protocol.version: {report['protocol_version'] or 'none'}",
        "",
    ]
    rows = [("API", "key", "versions", "")]
    for name, api in report["apis"].items():
        note = f"advertised {_range(api['advertised'])}" if api["advertised"] != api["served"] else ""
        rows.append((name, str(api["key"]), _range(api["served"]), note))
    lines += _aligned(rows)
    if report["not_here"]:
        lines.append("not served by Ottla, though that release serves it:")
        lines += _aligned([(f"  {name}", why) for name, why in report["not_here"].items()])
    rows = [("behaviour", "")] + [(name, _text(value)) for name, value in report["behaviour"].items()]
    return [*lines, "", *_aligned(rows)]


def difference_text(old: Profile, new: Profile) -> list[str]:
    """Returns the lines of the differences between two profiles."""
    report = difference(old, new)
    head = ("", old.name, new.name)
    lines: list[str] = []
    apis = [(f"  {name}", _range(ends["from"]), _range(ends["to"])) for name, ends in report["apis"].items()]
    moved = [(f"  {name}", _text(ends["from"]), _text(ends["to"])) for name, ends in report["behaviour"].items()]
    for title, rows in (("versions", apis), ("behaviour", moved)):
        if rows:
            lines += _aligned([(title, *head[1:]), *rows])
    for scope, found in report["configs"].items():
        defaults = [(f"  {name}", _text(ends["from"]), _text(ends["to"])) for name, ends in found["defaults"].items()]
        if defaults:
            lines += _aligned([(f"{scope} configs, defaults", *head[1:]), *defaults])
        for title, release, key in (("only in", old.name, "gone"), ("only in", new.name, "new")):
            if found[key]:
                lines.append(f"{scope} configs {title} {release}: {', '.join(found[key])}")
    return lines or [f"no difference between {old.name} and {new.name} that Ottla knows"]


def _range(ends: list[int] | None) -> str:
    if ends is None:
        return "-"
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    return [line.rstrip() for line in table(rows)]


def markdown() -> str:
    """The table of all profiles as Markdown."""
    rows = [
        "| release | Produce | Fetch | formats | changes from the release before |",
        "|---|---|---|---|---|",
    ]
    for number, entry in enumerate(overview()):
        changes = entry["moved"] if number else behaviour_of(profile(entry["release"]))
        moved = ", ".join(f"`{name}={_text(value)}`" for name, value in changes.items())
        name = f"`{OWN}`" if profile(entry["release"]).is_own else entry["release"]
        formats = ", ".join(entry["formats"])
        rows.append(f"| {name} | {_range(entry['produce'])} | {_range(entry['fetch'])} | {formats} | {moved} |")
    return "\n".join(rows)


def apis_markdown(served: Mapping[int, Versions]) -> str:
    """The table of APIs as Markdown: what releases advertise, and the versions that are `served`, or why none is."""
    rows = ["| API | key | Kafka advertises, from that release on | served here |", "|---|---|---|---|"]
    for key, name in sorted(api_names().items()):
        runs = ", ".join(f"{release}: {_range(_ends(versions))}" for release, versions in advertised_by_releases(key))
        here = _range(_ends(served[key])) if key in served else f"no: {why_not_served(key)}"
        if key in TELEMETRY_KEYS:
            here += ", with `ottla.client.telemetry=true`"
        rows.append(f"| {name} | {key} | {runs} | {here} |")
    return "\n".join(rows)
