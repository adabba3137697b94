"""Tokens of SASL/OAUTHBEARER on the side of the client: where they come from, and for how long one is used.

A token is used for new logins until 80 % of its lifetime are over, as in Kafka (`sasl.login.refresh.window.factor`);
one without a readable end is used once. Sources: KIP-255, KIP-768, KIP-1139, RFC 6749 (client credentials), RFC 7523
(assertions).
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import math
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple
from ...protocol.security.oauthbearer import (
    ERROR_SEEN,
    JAVA_BLANK,
    MECHANISM,
    check_extensions,
    client_first,
    double,
    https_context,
    json_object,
    millis,
    sections,
    unsecured_token,
)
from . import clock
from .assertion import CLIENT_ASSERTION, GRANT, Assertion, token_in
from .errors import ConfigError, KafkaError
from .sasl import LoginMethod, Tokens
from .threads import in_thread

WINDOW = 0.8
BYTES_MAX = 1 << 20
LOGIN, EXTENSION, SECURED_EXTENSION = "unsecuredLogin", "unsecuredLoginExtension_", "extension_"
FINAL_STATUSES = frozenset((400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505))
"""HTTP statuses after which Kafka's clients make no other attempt."""

Provided: TypeAlias = str | tuple[str, float]
"""A token, or a token with the end of its lifetime in seconds since 1970."""


class TokenError(Exception):
    """There is no token. The text is one line without secrets; `is_final` where another attempt is of no use."""

    def __init__(self, text: str, is_final: bool = True) -> None:
        super().__init__(text)
        self.is_final = is_final


class Token(NamedTuple):
    """A token, and its times in ms since 1970; None where they are not known."""

    value: str
    begins_ms: int | None = None
    ends_ms: int | None = None

    def is_fresh(self, now_ms: int) -> bool:
        """Returns whether new logins may use it: until 80 % of its lifetime."""
        if self.ends_ms is None or self.begins_ms is None:
            return False
        return now_ms < self.begins_ms + (self.ends_ms - self.begins_ms) * WINDOW


Source: TypeAlias = Callable[[], Awaitable[Provided]]


class BearerLogin(LoginMethod):
    """A login by tokens of a source, for all connections of a client."""

    mechanism = MECHANISM

    def __init__(
        self, source: Source, extensions: Mapping[str, str], backoff_ms: int = 100, backoff_max_ms: int = 10_000
    ) -> None:
        """`backoff_ms` is the first pause between two attempts to get a token, `backoff_max_ms` the time for all of
        them (`sasl.login.retry.backoff.*`). Raises ConfigError for extensions that RFC 7628 does not have."""
        try:
            check_extensions(extensions)
        except ValueError as error:
            raise ConfigError(f"OAUTHBEARER: {error}") from None
        self._source = source
        self._extensions = dict(extensions)
        self._backoff_ms, self._backoff_max_ms = backoff_ms, backoff_max_ms
        self._token: Token | None = None
        self._getting: asyncio.Task[Token] | None = None

    def __repr__(self) -> str:
        return "BearerLogin()"

    async def begin(self, host: str = "") -> Tokens:
        """Returns the exchange of one login. Raises KafkaError without a token."""
        token = await self._current()
        try:
            first = client_first(token.value, self._extensions)
        except ValueError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
        return self._exchange(token, first)

    def _exchange(self, token: Token, first: bytes) -> Tokens:
        error = yield first
        if error:  # the broker's error; its next response has the error code
            if self._token is token:  # else each login would be refused until its end by the client's clock
                self._token = None
            yield ERROR_SEEN
            raise ValueError("the broker refused the token")

    def close(self) -> None:
        """Stops getting a token."""
        if self._getting is not None:
            self._getting.cancel()

    async def _current(self) -> Token:
        token = self._token
        if token is not None and token.is_fresh(clock.now_ms()):
            return token
        if self._getting is None:
            self._getting = asyncio.create_task(self._renewed())
            self._getting.add_done_callback(self._got)
        try:
            return await asyncio.shield(self._getting)
        except TokenError as error:
            if token is not None and token.ends_ms is not None and clock.now_ms() < token.ends_ms:
                return token
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None

    def _got(self, task: asyncio.Task[Token]) -> None:
        self._getting = None
        if not task.cancelled() and task.exception() is None:
            self._token = task.result()

    async def _renewed(self) -> Token:
        loop = asyncio.get_running_loop()
        end, wait_s = loop.time() + self._backoff_max_ms / 1000, self._backoff_ms / 1000
        while True:
            try:
                return _token(await self._source(), clock.now_ms())
            except TokenError as error:
                if error.is_final or (left_s := end - loop.time()) <= 0:
                    raise
            await asyncio.sleep(min(wait_s, left_s))
            wait_s *= 2


def _token(provided: Provided, now_ms: int) -> Token:
    """Returns a token with its times: given with it, or those of its claims."""
    given: Any = provided
    if isinstance(given, tuple) and len(cast("tuple[Any, ...]", given)) >= 2:
        value, ends_s, *_ = cast("tuple[Any, ...]", given)
        ends = double(ends_s)
        if isinstance(value, str) and ends is not None:
            return Token(value, now_ms, millis(ends))
    if not isinstance(given, str):
        raise TokenError("the token provider must return a token as text, or (token, end in seconds since 1970)")
    try:
        claims = json_object(sections(given)[1])
    except ValueError:
        return Token(given)
    issued, ends = double(claims.get("iat")), double(claims.get("exp"))
    if ends is None:
        return Token(given)
    return Token(given, now_ms if issued is None else millis(issued), millis(ends))


def bearer_login(
    provider: Any, endpoint: Endpoint | None, options: Mapping[str, str], backoff_ms: int, backoff_max_ms: int
) -> BearerLogin:
    """Returns the login by the first source that is configured: a provider, an endpoint, or unsecured tokens by
    `options`, those of Kafka's login module. Raises ConfigError."""
    if provider is not None:
        return BearerLogin(provider_source(provider), provider_extensions(provider), backoff_ms, backoff_max_ms)
    source = unsecured_source(options) if endpoint is None else endpoint.source()
    prefix = EXTENSION if endpoint is None else SECURED_EXTENSION
    extensions = {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}
    return BearerLogin(source, extensions, backoff_ms, backoff_max_ms)


# Sources


def provider_source(provider: Any) -> Source:
    """Returns the source of a token provider: a function or coroutine function without arguments, or an object with a
    method `token`, as those of kafka-python and aiokafka. Raises ConfigError."""
    found: Any = provider if callable(provider) else getattr(provider, "token", None)
    if not callable(found):
        raise ConfigError("sasl.oauth.token.provider must be a function, or an object with a method token()")
    call = cast("Callable[[], Any]", found)

    async def get() -> Provided:
        try:
            result = call()
            return cast(Provided, await result if inspect.isawaitable(result) else result)
        except TokenError:
            raise
        except Exception as error:
            raise TokenError(f"the token provider raised {type(error).__name__}") from error

    return get


def provider_extensions(provider: Any) -> dict[str, str]:
    """Returns the extensions of a provider as kafka-python has them; none of one without such a method."""
    method = getattr(provider, "extensions", None)
    return dict(cast("Mapping[str, str]", method() or {})) if callable(method) else {}


def unsecured_source(options: Mapping[str, str]) -> Source:
    """Returns the source of unsecured tokens by the options of Kafka's login module. Raises ConfigError."""
    claims: dict[str, Any] = {}
    try:
        lifetime_s = int(options.get(f"{LOGIN}LifetimeSeconds", "3600"))
        for option, text in options.items():
            for prefix, read in _CLAIMS.items():
                if option.startswith(prefix) and (name := option.removeprefix(prefix)):
                    claims[name] = read(text)
    except ValueError:
        raise ConfigError(f"sasl.jaas.config: a number of {LOGIN} is malformed") from None
    if reserved := claims.keys() & {"iat", "exp"}:
        raise ConfigError(f"sasl.jaas.config: the claim {min(reserved)} is set by the client, not by an option")
    principal = options.get(f"{LOGIN}PrincipalClaimName", "").strip(JAVA_BLANK) or "sub"
    if not isinstance(claims.get(principal), str) or not claims[principal].strip(JAVA_BLANK):
        raise ConfigError(
            "OAUTHBEARER needs sasl.oauth.token.provider, sasl.oauthbearer.token.endpoint.url, or the option "
            f"{LOGIN}StringClaim_{principal} in sasl.jaas.config"
        )

    async def get() -> Provided:
        now_s = clock.now_ms() / 1000
        return unsecured_token({"exp": now_s + lifetime_s, "iat": now_s, **claims})

    return get


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def _list(text: str) -> list[str]:
    """Returns the elements after the delimiter, which is the first character."""
    return text[1:].split(text[0]) if len(text) > 1 else []


_CLAIMS: dict[str, Callable[[str], Any]] = {
    f"{LOGIN}StringClaim_": str,
    f"{LOGIN}NumberClaim_": _number,
    f"{LOGIN}ListClaim_": _list,
}


def file_source(path: Path) -> Source:
    """Returns the source of a token in a file, which is read for each token (Kafka's FileJwtRetriever)."""

    def read() -> str:
        try:
            return token_in(path, "token")
        except ValueError as error:
            raise TokenError(str(error)) from None

    return lambda: asyncio.to_thread(read)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL of tokens: a file, or a token endpoint, to which the client sends its credentials (RFC 6749, 4.4).

    These are a secret, with `quotes_secret` in the characters of URLs, or an assertion, with `grants_assertion` as the
    grant. `trust` has the options of the endpoint's trust store.
    """

    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    trust: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    assertion: Assertion | None = None
    grants_assertion: bool = False
    quotes_secret: bool = False
    timeout_s: float = 10.0

    def source(self) -> Source:
        """Returns the source of its tokens. Raises ConfigError."""
        url = self.url.strip(JAVA_BLANK)
        try:
            parts = urllib.parse.urlsplit(url)
            is_sound = url.isprintable() and " " not in url and parts.port != 0
        except ValueError:
            raise ConfigError(f"sasl.oauthbearer.token.endpoint.url {url!r:.200} is not a URL") from None
        if is_sound and parts.scheme == "file" and not parts.netloc:
            return file_source(Path(urllib.parse.unquote(parts.path)))
        if not is_sound or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("sasl.oauthbearer.token.endpoint.url must be a URL with http, https or file")
        client_id, secret, scope = (
            (text or "").strip(JAVA_BLANK) for text in (self.client_id, self.client_secret, self.scope)
        )
        if self.assertion is None and not (client_id and secret):
            names = "sasl.oauthbearer.client.credentials.client.id and .client.secret"
            raise ConfigError(f"OAUTHBEARER needs {names} for the token endpoint")
        return replace(self, url=url, client_id=client_id, client_secret=secret, scope=scope)._fetched

    async def _fetched(self) -> str:
        """Returns a token of an HTTP endpoint; each request has a thread of its own. Raises TokenError."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await in_thread(lambda: _post(self), "ottla-token")
        except TokenError:
            raise
        except Exception as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: Exception) -> TokenError:
        host = urllib.parse.urlsplit(self.url).hostname
        if isinstance(error, urllib.error.HTTPError):
            with error:
                text = f"the token endpoint at {host} has HTTP status {error.code}"
                return TokenError(text, error.code in FINAL_STATUSES)
        if isinstance(error, TimeoutError):
            return TokenError(f"the token endpoint at {host} sent no response within {self.timeout_s:g} s", False)
        reason = getattr(error, "reason", error)
        text = str(getattr(reason, "strerror", None) or reason or type(reason).__name__).replace("\n", " ")[:200]
        return TokenError(f"cannot reach the token endpoint at {host}: {text}", False)

    def request(self) -> urllib.request.Request:
        """Returns the HTTP request for a token. Raises TokenError without an assertion."""
        headers = {
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form = {"grant_type": "client_credentials"}
        if self.assertion is None:
            pair = [self.client_id or "", self.client_secret or ""]
            pair = list(map(urllib.parse.quote_plus, pair)) if self.quotes_secret else pair
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}"
        else:
            try:
                text = self.assertion.text(clock.now_ms())
            except ValueError as error:
                raise TokenError(str(error)) from None
            if self.grants_assertion:
                form = {"grant_type": GRANT, "assertion": text}
            else:
                form |= {"client_assertion_type": CLIENT_ASSERTION, "client_assertion": text}
                form |= {"client_id": self.client_id} if self.client_id else {}
        form |= {"scope": self.scope} if self.scope else {}
        return urllib.request.Request(self.url, urllib.parse.urlencode(form).encode(), headers, method="POST")


def _post(endpoint: Endpoint) -> str:
    opener = urllib.request.OpenerDirector()
    is_https = endpoint.url.lower().startswith("https:")
    transport = (
        urllib.request.HTTPSHandler(context=https_context(endpoint.trust)) if is_https else urllib.request.HTTPHandler()
    )
    for handler in (
        transport,
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):  # no proxies, no redirects, which would take the secret elsewhere, and no other schemes
        opener.add_handler(handler)
    deadline, data = time.monotonic() + endpoint.timeout_s, bytearray()
    with opener.open(endpoint.request(), timeout=endpoint.timeout_s) as response:
        while len(data) <= BYTES_MAX and time.monotonic() < deadline and (chunk := response.read1(65_536)):
            data += chunk
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    for name in ("access_token", "id_token"):
        token: Any = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
        if isinstance(token, str) and token.strip(JAVA_BLANK):
            return token.strip(JAVA_BLANK)
    raise TokenError("the token endpoint sent no access_token")
