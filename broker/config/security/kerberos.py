"""GSSAPI of a listener: the broker's keytab and principal, and the rules that make users of Kerberos principals.

Sources: Java's Krb5LoginModule (options), Kafka's KerberosLogin, KerberosName, KerberosShortNamer and KerberosRule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ....protocol.named import NamedTuple
from ....protocol.security.kerberos import Library, is_true, service_name
from ...errors import ConfigError
from ...patterns import BadPattern, Pattern

SERVICE_NAME = "sasl.kerberos.service.name"
RULES = "sasl.kerberos.principal.to.local.rules"
DEFAULT = "DEFAULT"
NAME_CHARS_MAX = 4096
_RULE = re.compile(
    r"(?P<default>DEFAULT)|RULE:\[(?P<count>\d*):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<text>[^/]*)/(?P<repeat>g)?)?/?(?P<case>[LU])?",
    re.ASCII,
)
_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_PARAMETER = re.compile(r"\$([0-9]*)")
_DIGITS_MAX = 9


class NoName(Exception):
    """A Kerberos principal has no user: it is malformed, or no rule applies to it. The text is for the log."""


@dataclass(frozen=True, slots=True)
class KerberosSettings:
    """The settings of one listener. Without `keytab` it is the library's default one."""

    principal: str
    keytab: str | None
    rules: tuple[str, ...] = (DEFAULT,)


def kerberos_settings(options: Mapping[str, str], service: str | None, rules: Iterable[str] | None) -> KerberosSettings:
    """Returns the settings, from the options of the login module and two configs. Raises ConfigError."""
    try:
        service_name(options, service)
        Library()
    except ValueError as error:
        raise ConfigError(str(error)) from None
    for name in ("useKeyTab", "storeKey"):
        if not is_true(options, name):
            raise ConfigError(f"the login module needs {name}=true: a broker accepts tickets by the keys of a keytab")
    principal = options.get("principal")
    if not principal:
        raise ConfigError('the login module needs the broker\'s principal, such as principal="kafka/HOST@REALM"')
    found = tuple(rules or (DEFAULT,))
    LocalNames(found, "")  # raises ConfigError
    return KerberosSettings(principal, options.get("keyTab"), found)


class _Rule(NamedTuple):
    """One rule for principals of so many components: a text of the format, which must match, and a replacement in it.
    Without a format the rule is DEFAULT."""

    components: int = 0
    format: str | None = None
    match: Pattern | None = None
    pattern: Pattern | None = None
    text: str = ""
    is_repeated: bool = False
    case: str | None = None

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Returns the user of a principal, its realm first; None if the rule does not apply. Raises NoName."""
        if self.format is None:
            found = parts[1] if parts[0] == default_realm else None
        elif len(parts) - 1 != self.components:
            return None
        else:
            found = _PARAMETER.sub(partial(_parameter, parts), self.format)
            if self.match is not None and not self.match.fullmatch(found):
                return None
            if self.pattern is not None:
                found = self.pattern.replace(self.text, found, self.is_repeated)
        if found is None:
            return None
        if "/" in found or "@" in found:
            raise NoName(f"the name {found} that a rule of {RULES} makes is not simple")
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


def _parameter(parts: Sequence[str], reference: re.Match[str]) -> str:
    digits = reference[1]
    if not digits or len(digits) > _DIGITS_MAX or int(digits) >= len(parts):
        raise NoName(f"a rule of {RULES} has ${digits:.9}, and the principal has the parts $0 to ${len(parts) - 1}")
    return parts[int(digits)]


class LocalNames:
    """The users of Kerberos principals."""

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        """Raises ConfigError for a malformed rule."""
        self._rules = [_parsed(rule) for rule in rules]
        self._default_realm = default_realm

    def user(self, principal: str) -> str:
        """Returns the user of a principal. Raises NoName."""
        shown = principal[:NAME_CHARS_MAX]
        match = _NAME.fullmatch(principal)
        if match is None and "@" not in principal:
            return principal
        if match is None or len(principal) > NAME_CHARS_MAX:
            raise NoName(f"malformed Kerberos name {shown}")
        service, host, realm = match.groups()
        parts = (realm, service) if host is None else (realm, service, host)
        for rule in self._rules:
            found = rule.apply(parts, self._default_realm)
            if found is not None:
                return found
        raise NoName(f"no rule of {RULES} applies to {shown}")


def _parsed(text: str) -> _Rule:
    match = _RULE.match(text)
    if match is None:
        raise ConfigError(f"{RULES}: Invalid rule: {text}")
    if match.end() != len(text):
        raise ConfigError(f"{RULES}: Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    if match["default"]:
        return _Rule()
    if not 0 < len(match["count"]) <= _DIGITS_MAX:
        raise ConfigError(f"{RULES}: Invalid rule: `{text}`, it needs a number of components after RULE:[")
    try:
        whole, part = match["match"], match["pattern"]
        return _Rule(
            int(match["count"]),
            match["format"],
            None if whole is None else Pattern(whole),
            None if part is None else Pattern(part, has_groups=True),
            match["text"] or "",
            match["repeat"] is not None,
            match["case"],
        )
    except BadPattern as error:
        raise ConfigError(f"{RULES}: Invalid rule: `{text}`, {error}") from None
