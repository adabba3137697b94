"""What must not leave the broker's memory: credentials in requests and answers, made unreadable where they stand.

Owns the list of them. Bytes become zeros, texts stars, each as long as before, so that the frame keeps its size and can
still be read. These are: salts and salted passwords (AlterUserScramCredentials), the HMACs of delegation tokens, all
that SaslAuthenticate and Envelope carry, and the values of configs that are sensitive or that no release knows, which
Kafka hides in its logs, too. A frame that may carry such and cannot be read is blanked as a whole, behind its header.
So is one of no API and version that there is: a client that speaks SASL without a handshake begins with its password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ...protocol.api_key import ApiKey
from ...protocol.apis import apis
from ...protocol.compiler import build, reader
from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.headers import read_prefix, read_response_header, read_rest
from ...protocol.messages.configs.alter_configs import AlterConfigsRequest
from ...protocol.messages.configs.describe_configs import DescribeConfigsResponse
from ...protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ...protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ...protocol.messages.security.create_delegation_token import CreateDelegationTokenResponse
from ...protocol.messages.security.describe_delegation_token import DescribeDelegationTokenResponse
from ...protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ...protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ...protocol.messages.topics.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ...protocol.schema import spec
from ..config.definitions import broker_fact, harmless
from ..logs import Levels
from ..releases.profiles import OWN, profile
from .exchange import HEAD_BYTES, client_id_of, is_header

WHOLE = {36, 58}  # SaslAuthenticate, Envelope: nothing but what is secret, or anything
SCOPES: Mapping[int, str] = {2: "topic", 4: "broker", 16: "client-metrics", 32: "group"}  # by ConfigResource type
_TOPIC, _LOGGER = 2, 8
_PREFIX_BYTES = 8  # key, version and correlation id of a request
_FIRST_BYTES = 4  # key and version, or the correlation id of an answer


def is_secret(resource_type: int, name: str, value: str) -> bool:
    """Whether a config's value is not to be shown. A level of a logger is harmless, whatever the logger's name."""
    if resource_type == _LOGGER:
        return value not in Levels.LEVELS
    scope = SCOPES.get(resource_type)
    if scope is None:
        return True
    if name in harmless(scope):
        return False
    fact = broker_fact(name, profile(OWN)) if scope == "broker" else None  # behind the prefix of a listener
    return fact is None or fact.name not in harmless(scope)


def _stars(text: str) -> str:
    return "*" * len(text.encode())


def _hide(configs: Iterable[Any] | None, resource_type: int) -> None:
    for config in configs or ():
        if config.value and is_secret(resource_type, config.name, config.value):
            config.value = _stars(config.value)


def _alter_configs(message: Any) -> None:
    for resource in message.resources:
        _hide(resource.configs, resource.resource_type)


def _create_topics(message: Any) -> None:
    for topic in message.topics:
        _hide(topic.configs, _TOPIC)


def _created_topics(message: Any) -> None:
    for topic in message.topics:
        _hide(topic.configs, _TOPIC)


def _described_configs(message: Any) -> None:
    """A broker tells what it holds to be sensitive; what it does not is looked at as in a request."""
    for result in message.results:
        for config in result.configs:
            for one in (config, *config.synonyms):
                if one.value and (config.is_sensitive or is_secret(result.resource_type, config.name, one.value)):
                    one.value = _stars(one.value)


def _scram(message: Any) -> None:
    for one in message.upsertions:
        one.salt, one.salted_password = bytes(len(one.salt)), bytes(len(one.salted_password))


def _token(message: Any) -> None:
    message.hmac = bytes(len(message.hmac))


def _tokens(message: Any) -> None:
    for token in message.tokens:
        _token(token)


_Blank = Callable[[Any], None]
_REQUESTS: Mapping[int, tuple[type, _Blank]] = {
    spec(cls).api_key: (cls, blank)
    for cls, blank in (
        (CreateTopicsRequest, _create_topics),
        (AlterConfigsRequest, _alter_configs),
        (RenewDelegationTokenRequest, _token),
        (ExpireDelegationTokenRequest, _token),
        (IncrementalAlterConfigsRequest, _alter_configs),
        (AlterUserScramCredentialsRequest, _scram),
    )
}
_RESPONSES: Mapping[int, tuple[type, _Blank]] = {
    spec(cls).api_key: (cls, blank)
    for cls, blank in (
        (CreateTopicsResponse, _created_topics),
        (DescribeConfigsResponse, _described_configs),
        (CreateDelegationTokenResponse, _token),
        (DescribeDelegationTokenResponse, _tokens),
    )
}
KEYS = frozenset({*WHOLE, *_REQUESTS, *_RESPONSES})
"""The APIs whose frames may carry credentials."""


@lru_cache(1024)
def may_carry(api_key: int, version: int) -> bool:
    """Whether frames of this may carry credentials: those of KEYS, and what is of no API in no version."""
    if api_key in KEYS:
        return True
    api = apis().get(api_key)
    return api is None or (version not in spec(api.request).versions and api_key != ApiKey.API_VERSIONS)


def blanked(frame: bytes, api_key: int, version: int, request: bool = True) -> bytes:
    """A request's frame, or an answer's, without its size and without what is secret in it; the very frame where there
    can be nothing. It may be cut, or be no such message at all."""
    if api_key not in KEYS:
        return _without_body(frame, request=True) if request and may_carry(api_key, version) else frame
    found = (_REQUESTS if request else _RESPONSES).get(api_key)
    if api_key in WHOLE:
        return _without_body(frame, request)
    if found is None:
        return frame
    cls, blank = found
    declared = spec(cls)
    if version not in declared.versions:
        return _without_body(frame, request)
    try:
        position = _body(frame, api_key, version in declared.flexible, request)
        message, end = reader(cls, version)(frame, position)
        blank(message)
        return frame[:position] + build(message, version) + bytes(len(frame) - end)
    except (MalformedMessage, ProtocolViolation):
        return _without_body(frame, request)


def _body(frame: bytes, api_key: int, flexible: bool, request: bool) -> int:
    """Where the message begins. Raises ProtocolViolation."""
    if request:
        return read_rest(frame, read_prefix(frame), flexible)[1]
    return read_response_header(frame, api_key, flexible)[1]


def _without_body(frame: bytes, request: bool) -> bytes:
    """All zeros behind the client id, or what there is of a header."""
    kept = _FIRST_BYTES
    if request:
        with suppress(ProtocolViolation):
            key, version, _, length = read_prefix(frame)
            if length == -1 or client_id_of(frame, key, version, length) is not None:
                kept = HEAD_BYTES + max(0, length)
            elif is_header(key, version):
                kept = _PREFIX_BYTES
    return frame[:kept] + bytes(max(0, len(frame) - kept))
