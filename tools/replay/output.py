"""The output of `ottla replay` and `ottla diff`: text, or one JSON document.

Owns the layout. Unexplained differences are printed one by one, the others are counted by reason, or printed as well
with `everything`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...broker.recording.decoding import plain
from ...protocol.errors import error_name
from ...protocol.narrowing import is_list, is_tuple
from ...protocol.schema import Value
from .comparison import Comparison, Finding, Why
from .value_comparison import is_bytes_like

SHOWN_MAX = 200  # characters of a value
_TITLES = {
    Why.UNEXPLAINED: "without an explanation",
    Why.EXPECTED: "expected between the releases",
    Why.FOLLOWS: "that follow from others",
    Why.MOMENT: "that depend on timing",
    Why.BEFORE: "about earlier topics, groups or transactions",
}
_VERSIONS = "versions of "


def text(found: Comparison, sides: tuple[str, str], notes: Sequence[str], *, everything: bool) -> Iterator[str]:
    """Yields the lines of the text output, with line ends."""
    for note in notes:
        yield f"{note}\n"
    last = None
    for one in found.findings:
        if one.why is not Why.UNEXPLAINED and not everything:
            continue
        if one.number != last:
            yield f"#{one.number} {one.api} v{one.version}, connection {one.connection}\n"
            last = one.number
        values = f"{shown(one.path, one.left)} <> {shown(one.path, one.right)}"
        times = f", {one.times} times" if one.times > 1 else ""
        yield f"    {one.path or '(whole response)'}: {values}{times}{_because(one)}\n"
    yield from _summary(found, sides)


def _because(one: Finding) -> str:
    if one.why is Why.UNEXPLAINED:
        return ""
    label = "expected" if one.why is Why.EXPECTED else one.why.value
    return f"  ({label}{': ' if one.reason else ''}{one.reason})"


def _summary(found: Comparison, sides: tuple[str, str]) -> Iterator[str]:
    yield f"{found.exchanges} requests, {found.compared} compared: {sides[0]} <> {sides[1]}\n"
    for reason, count in found.not_sent.most_common():
        yield f"  {count} not sent: {reason}\n"
    if found.translatable:
        yield f"  --translate would send {found.translatable} of them, each in the nearest served version\n"
    for reason, count in found.not_compared.most_common():
        yield f"  {count} not compared: {reason}\n"
    if not found.counts.total():
        yield "no difference\n"
    for why, title in _TITLES.items():
        count = found.counts[why]
        if count:
            yield f"differences {title}: {count}{_reasons(found, why)}\n"


def _reasons(found: Comparison, why: Why) -> str:
    if why is Why.UNEXPLAINED:
        return ""
    reasons = Counter(one.reason for one in found.findings if one.why is why and one.reason)
    versions = [reason for reason in reasons if reason.startswith(_VERSIONS)]
    if len(versions) > 1:
        reasons[f"{_VERSIONS}{len(versions)} APIs"] = sum(reasons.pop(reason) for reason in versions)
    listed = [f"{count} {reason}" for reason, count in reasons.most_common()]
    return f" ({', '.join(listed)})" if listed else ""


def shown(path: str, value: Any) -> str:
    """Formats a value; error codes have their names, long values are cut."""
    if path.endswith("error_code") and isinstance(value, int) and (name := error_name(value)):
        return f"{value} {name}"
    text = value if isinstance(value, str) else repr(bytes(value) if is_bytes_like(value) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def document(found: Comparison, sides: tuple[str, str], notes: Sequence[str]) -> dict[str, Any]:
    """Returns the JSON document.

    It has `left`, `right`, `requests`, `compared`, `not_sent` and `not_compared` (reason -> count), `translatable`
    (count of requests that `--translate` would send), `counts` (why -> count), `notes`, and `differences` with number,
    connection, api, version, path, left, right, why, reason and times.
    """
    return {
        "left": sides[0],
        "right": sides[1],
        "requests": found.exchanges,
        "compared": found.compared,
        "not_sent": dict(found.not_sent),
        "translatable": found.translatable,
        "not_compared": dict(found.not_compared),
        "counts": {why.value: found.counts[why] for why in Why},
        "notes": list(notes),
        "differences": [
            one._asdict() | {"left": _jsonable(one.left), "right": _jsonable(one.right)} for one in found.findings
        ],
    }


def _jsonable(value: Any) -> Any:
    if isinstance(value, Value):
        return plain(value)
    if is_bytes_like(value):
        return bytes(value).hex()
    if is_list(value) or is_tuple(value):
        return [_jsonable(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)
