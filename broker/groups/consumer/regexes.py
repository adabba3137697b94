"""Regular expressions of topic names (KIP-848): when they are resolved again, and what a change of one leads to.

Expressions are RE2's, and match a whole name. The search itself is an effect: it visits all topics of the cluster.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ...patterns import BadPattern, Pattern
from .events import Caller, RegexesResolved, Resolve
from .moves import Step, Subscriptions
from .state import Info, RegexSet

REFRESH_INTERVAL_MIN_MS = 10_000

# RE2's words for a problem, and those of RE2/J, which Kafka uses.
_PROBLEMS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


def update_regex(step: Step, before: Info, after: Info, caller: Caller | None) -> tuple[bool, bool]:
    """Collects what a changed expression of a member leads to, and starts a search where one is due, with the
    permissions of `caller`. Returns whether the expression has changed, and whether its topics are known already, so
    that they can be assigned at once.
    """
    group, old, new = step.group, before.regex, after.regex
    changed, is_known, is_new = old != new, False, False
    if changed:
        if old and group.regexes.get(old) == 1:
            step.changes.append(RegexSet(old, None))
        if new and new not in group.regexes:
            _check(new)
            is_new = True
        elif new:
            is_known = new in group.resolved
        else:
            is_known = True
    if caller is not None and (is_new or group.regexes):
        _refresh(step, before, after, caller, is_new=is_new)
    return changed, is_known


def _refresh(step: Step, before: Info, after: Info, caller: Caller, *, is_new: bool) -> None:
    group = step.group
    last = next(iter(group.resolved.values()), None)
    if last is not None and step.now_ms <= last.at_ms + REFRESH_INTERVAL_MIN_MS:
        return
    subscriptions = Subscriptions(group)
    subscriptions.count(before, -1)
    subscriptions.count(after, 1)
    is_due = is_new or last is None or len(subscriptions.regexes) != len(group.resolved)
    if last is not None:
        is_due = is_due or last.version < step.topics.created_version()
        is_due = is_due or step.now_ms > last.at_ms + step.settings.regex_refresh_interval_ms
    if is_due and subscriptions.regexes:
        step.effects.append(Resolve(tuple(sorted(subscriptions.regexes)), caller))


def resolved(step: Step, event: RegexesResolved) -> None:
    """Adopts the result of a search. Expressions without subscribers are dropped."""
    subscriptions = Subscriptions(step.group)
    changed = False
    for regex, found in event.found.items():
        if regex in step.group.regexes:
            changed |= subscriptions.resolve(regex, found.topics)
            step.changes.append(RegexSet(regex, found))
    step.advance_epoch(subscriptions, needed=changed)


def _check(regex: str) -> None:
    try:
        Pattern(regex)
    except BadPattern as error:
        problem = str(error)
        words = problem.rpartition(": ")[0] or problem
        text = _PROBLEMS.get(words, words)
        message = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}."
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
