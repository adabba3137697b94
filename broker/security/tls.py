"""TLS of one listener: the context for new connections, which follows changed files, and principals of certificates.

Sources: RFC 2253 (names of principals), KIP-371 (`ssl.principal.mapping.rules`), KIP-226 (certificates replaced while
the broker runs).
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ...protocol.security.certificates import distinguished_name
from ...protocol.security.key_stores import KeyStore, StoreError
from ..config.security.tls import TlsSettings, server_context
from ..config.serve_options import tls_of
from ..errors import ConfigError
from ..logs import get_logger
from ..patterns import java_replacement

if TYPE_CHECKING:
    from ..config.serve_options import Listener
    from ..config.values import Config

NAME_CHARS_MAX = 4096
_RULE = r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<text>(?:\\.|[^\\/])*)/(?P<case>[LU]?)|"
_RULES = re.compile(rf"\s*(?:{_RULE})\s*(?:,|$)")


class NoName(Exception):
    """No rule of `ssl.principal.mapping.rules` matches a client's name."""


class Rule(NamedTuple):
    """One rule: names that match the whole pattern become the replacement. Without a pattern every name is kept."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Returns the name of the principal, or None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(lambda match: java_replacement(self.replacement, (match[0], *match.groups())), name)
        return found.lower() if self.case == "L" else found.upper() if self.case == "U" else found


def parse_rules(text: str) -> list[Rule]:
    """Parses `ssl.principal.mapping.rules`. Raises ConfigError."""
    rules: list[Rule] = []
    text = text.strip()
    at = 0
    while at < len(text):
        found = _RULES.match(text, at)
        if found is None:
            raise ConfigError(f"ssl.principal.mapping.rules: invalid rule: {text[at:]}")
        at = found.end()
        if found["default"]:
            rules.append(Rule(None))
        elif found["pattern"] is not None:
            try:
                rules.append(Rule(re.compile(found["pattern"]), found["text"], found["case"]))
            except re.error as error:
                raise ConfigError(f"ssl.principal.mapping.rules: {found['pattern']}: {error}") from None
    return rules


class TlsListener:
    """The TLS of one listener of one node.

    There is a new context when a config or a file has changed; connections that are open keep theirs. A store that
    cannot be read, as a file that is only half-written, changes nothing and is logged once.
    """

    def __init__(self, config: Config, listener: Listener) -> None:
        """Reads the stores. Raises ConfigError."""
        self._config = config
        self._listener = listener
        self._settings = tls_of(config, listener)
        self._rules = parse_rules(self._settings.rules)
        self._seen = self._refused = self._state()
        self._context = self._made(self._settings)
        self._bad: dict[str, ssl.SSLContext] = {}

    def _state(self) -> tuple[int, list[object]]:
        return self._config.revision, _stamps(self._settings)

    def _made(self, settings: TlsSettings) -> ssl.SSLContext:
        try:
            return server_context(settings)
        except StoreError as error:
            raise ConfigError(f"listener {self._listener.name}: {error}") from None

    def context(self) -> ssl.SSLContext:
        """The context for a new connection."""
        now = self._state()
        if now not in (self._seen, self._refused):
            try:
                settings = tls_of(self._config, self._listener)
                if settings != self._settings or now[1] != self._seen[1]:
                    self._context = self._made(settings)
                    get_logger().info("certificate replaced", listener=self._listener.name)
                self._settings = settings
                self._seen = self._state()
            except ConfigError as error:
                self._refused = now
                get_logger().warning("certificate not replaced", listener=self._listener.name, reason=str(error))
        return self._context

    def context_with(self, certificate: str, made: Callable[[str], tuple[str, str]]) -> ssl.SSLContext:
        """The context with a certificate of a fault, which `made` makes at the first use. Raises ConfigError."""
        if certificate not in self._bad:
            chain, key = made(certificate)
            store = KeyStore("PEM", chain=chain, key=key)
            self._bad[certificate] = self._made(replace(self._settings, key_store=store))
        return self._bad[certificate]

    def principal(self, certificate: bytes) -> str:
        """Returns the principal of a client by its certificate (DER). Raises NoName."""
        name = distinguished_name(certificate)
        if len(name) <= NAME_CHARS_MAX:
            for rule in self._rules:
                if (found := rule.apply(name)) is not None:
                    return f"User:{found}"
        raise NoName(f"no rule of ssl.principal.mapping.rules matches {name[:NAME_CHARS_MAX]}")


def _stamps(settings: TlsSettings) -> list[object]:
    """Returns what changes with the files of the stores; None for a file that cannot be seen."""
    stamps: list[object] = []
    for path in (settings.key_store.location, settings.trust_store.location):
        if path is not None:
            try:
                status = os.stat(path)
                stamps.append((status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                stamps.append(None)
    return stamps
