"""Delegation tokens: issue, renewal, expiry, and their secrets (KIP-48, KIP-373, KIP-900).

Owns the tokens of a cluster, stored as Kafka's records; a change is durable before it is visible. A record has no
secret: the secret of a token is the HMAC of its id under `delegation.token.secret.key`, so that a changed key ends all
tokens that were issued before. `sasl/mechanisms.py` authenticates by them.

Sources: Kafka's DelegationTokenControlManager, and DelegationTokenManager of the releases with ZooKeeper.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Literal, get_args

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.internal_records.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ...protocol.limits import INT64_MAX
from ...protocol.named import NamedTuple
from ...storage.format.partition_metadata import encode_id
from ..errors import Refused
from .scram import Credential, Mechanism

if TYPE_CHECKING:
    from ..config.configured import Configured
    from ..metadata.log import MetadataLog

RECORDS = (DelegationTokenRecord, RemoveDelegationTokenRecord)
"""Records of the metadata log that `DelegationTokens` applies."""
REMOVED_AT_ONCE = 1000
"""Most tokens that one check for expired ones removes in one batch, as in Kafka."""
RECORD_BYTES_MAX = 8 << 20
"""Kafka's limit of a batch of the metadata log; only a token with very many renewers would exceed it."""
NO_TIME = -1
Rules = Literal["zookeeper", "expired_first", "removable"]
ZOOKEEPER, EXPIRED_FIRST, REMOVABLE = get_args(Rules)
KEY_BYTES = 32
SECRET_KEY, MASTER_KEY = "delegation.token.secret.key", "delegation.token.master.key"


@frozen
class TokenSettings:
    """The key of all secrets, the longest life of a token, and its life until it has to be renewed."""

    secret_key: bytes = field(repr=False)
    max_lifetime_ms: int
    expiry_ms: int


def token_settings(config: Configured) -> TokenSettings | None:
    """Returns the settings, or None without a key: then delegation tokens are disabled. The key of releases before 4.0
    may have its older name, which applies only where the newer one is not set."""
    key: str | None = config.get(SECRET_KEY)
    if key is None:
        key = config.get(MASTER_KEY)
    if not key:
        return None
    return TokenSettings(
        key.encode(), config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"]
    )


class DelegationToken(NamedTuple):
    """A token. Principals are "Type:name"; times are in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    max_ms: int
    expiry_ms: int

    @property
    def principals(self) -> Sequence[str]:
        """The principals that own, have requested or may renew the token: it is described to them."""
        return (self.owner, self.requester, *self.renewers)

    def is_expired(self, now_ms: int) -> bool:
        """Returns whether the token is neither renewed nor moved any more."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms


class DelegationTokens:
    """All tokens of a cluster. At startup pass the records of the metadata log to `replay`.

    `settings` are None where tokens are disabled; `rules` is the behaviour `token_rules` of the release.
    """

    def __init__(
        self,
        metadata: MetadataLog,
        settings: TokenSettings | None,
        new_id: Callable[[], bytes],
        *,
        rules: Rules,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._new_id = new_id
        self._rules = rules
        # Without a configured key no secret may be right.
        self._key = settings.secret_key if settings is not None else secrets.token_bytes(KEY_BYTES)
        self._tokens: dict[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}  # by digest of the secret: a look-up by a digest has no useful timing
        self._credentials: dict[tuple[str, Mechanism], Credential] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def is_enabled(self) -> bool:
        """Whether a key is configured."""
        return self._settings is not None

    @property
    def refused_ms(self) -> int:
        """The timestamps in the response to a request that is refused because of the token or the settings."""
        return NO_TIME if self._rules == ZOOKEEPER else 0

    @property
    def all(self) -> Sequence[DelegationToken]:
        """The tokens, in the order of their issue."""
        return list(self._tokens.values())

    def replay(self, record: DelegationTokenRecord | RemoveDelegationTokenRecord) -> None:
        digest = hashlib.sha256(self.secret_of(record.token_id)).digest()
        if isinstance(record, RemoveDelegationTokenRecord):
            self._tokens.pop(record.token_id, None)
            self._ids.pop(digest, None)
            for mechanism in Mechanism:
                self._credentials.pop((record.token_id, mechanism), None)
            return
        self._ids[digest] = record.token_id
        self._tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.max_timestamp,
            record.expiration_timestamp,
        )

    # Secrets

    def secret_of(self, token_id: str) -> bytes:
        """Returns the HMAC of an id."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def find(self, token_id: str) -> DelegationToken | None:
        """Returns a token that may be used to log in, by its id."""
        return self._tokens.get(token_id) if self.is_enabled else None

    def credential(self, token: DelegationToken, mechanism: Mechanism) -> Credential:
        """Returns the keys of a token's secret. They are derived at its first login, which takes milliseconds: a start
        with many tokens is not delayed. An id is random, so that none can be found by this time."""
        known = self._credentials.get((token.token_id, mechanism))
        if known is None:
            password = base64.b64encode(self.secret_of(token.token_id)).decode()
            known = self._credentials[token.token_id, mechanism] = Credential.of_password(mechanism, password)
        return known

    # Changes

    def create(
        self, owner: str, requester: str, renewers: Iterable[str], max_lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        """Issues a token; the configured lifetime is the longest, and that of a request for 0 ms or less.

        Raises Refused without a key, StorageError, and RECORD_LIST_TOO_LARGE for too many renewers.
        """
        settings = self._enabled()
        lifetime_ms = settings.max_lifetime_ms
        if max_lifetime_ms > 0:
            lifetime_ms = min(lifetime_ms, max_lifetime_ms)
        max_ms = _later(now_ms, lifetime_ms)
        token_id = encode_id(self._new_id())
        expiry_ms = min(max_ms, _later(now_ms, settings.expiry_ms))
        token = DelegationToken(token_id, owner, requester, tuple(renewers), now_ms, max_ms, expiry_ms)
        if sum(len(renewer) for renewer in token.renewers) > RECORD_BYTES_MAX:
            raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE)
        self._store(token, now_ms)
        return token

    def renew(self, principal: str, secret: bytes, period_ms: int, now_ms: int) -> int:
        """Moves the expiry of a token to `period_ms` from now, at most to the end of its life; returns the new one.

        A negative period is the configured one, which a KRaft controller also takes for 0 and as the longest. Raises
        Refused, StorageError.
        """
        settings = self._enabled()
        token = self._with_secret(secret)
        if self._rules == ZOOKEEPER:
            _check_renewer(token, principal)
            _check_unexpired(token, now_ms)
            period_ms = period_ms if period_ms >= 0 else settings.expiry_ms
        else:
            _check_unexpired(token, now_ms)
            _check_renewer(token, principal)
            period_ms = min(period_ms, settings.expiry_ms) if period_ms > 0 else settings.expiry_ms
        return self._moved(token, period_ms, now_ms)

    def expire(self, principal: str, secret: bytes, period_ms: int, now_ms: int) -> int:
        """Moves the expiry of a token to `period_ms` from now, and with a negative period removes the token; returns
        the new expiry: after a removal now, or the period itself with the rules `expired_first`. Raises Refused,
        StorageError."""
        self._enabled()
        token = self._with_secret(secret)
        is_removed = period_ms < 0
        if self._rules == EXPIRED_FIRST:
            _check_unexpired(token, now_ms)
        _check_renewer(token, principal)
        if not (is_removed and self._rules == REMOVABLE):
            _check_unexpired(token, now_ms)
        if not is_removed:
            return self._moved(token, period_ms, now_ms)
        self._write([RemoveDelegationTokenRecord(token_id=token.token_id)], now_ms)
        return period_ms if self._rules == EXPIRED_FIRST else now_ms

    def remove_expired(self, now_ms: int) -> int:
        """Removes tokens whose time is over, REMOVED_AT_ONCE at most; returns their number. Raises StorageError."""
        expired = [token for token in self._tokens.values() if token.is_expired(now_ms)][:REMOVED_AT_ONCE]
        if expired:
            self._write([RemoveDelegationTokenRecord(token_id=token.token_id) for token in expired], now_ms)
        return len(expired)

    def next_expiry_ms(self) -> int | None:
        """Returns the earliest time at which a token is over; None without tokens."""
        return min((min(token.expiry_ms, token.max_ms) + 1 for token in self._tokens.values()), default=None)

    def _enabled(self) -> TokenSettings:
        if self._settings is None:
            raise Refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return self._settings

    def _with_secret(self, secret: bytes) -> DelegationToken:
        token_id = self._ids.get(hashlib.sha256(secret).digest())
        if token_id is None:
            raise Refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return self._tokens[token_id]

    def _moved(self, token: DelegationToken, period_ms: int, now_ms: int) -> int:
        expiry_ms = min(token.max_ms, _later(now_ms, period_ms))
        self._store(token._replace(expiry_ms=expiry_ms), now_ms)
        return expiry_ms

    def _store(self, token: DelegationToken, now_ms: int) -> None:
        record = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_ms,
            max_timestamp=token.max_ms,
            expiration_timestamp=token.expiry_ms,
            token_id=token.token_id,
        )
        self._write([record], now_ms)

    def _write(self, records: Sequence[DelegationTokenRecord | RemoveDelegationTokenRecord], now_ms: int) -> None:
        self._metadata.append(records, now_ms)
        for record in records:
            self.replay(record)


def _check_unexpired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise Refused(ErrorCode.DELEGATION_TOKEN_EXPIRED)


def _check_renewer(token: DelegationToken, principal: str) -> None:
    """Raises Refused unless the principal may renew and expire the token; its requester may not."""
    if principal != token.owner and principal not in token.renewers:
        raise Refused(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _later(now_ms: int, period_ms: int) -> int:
    """Returns a time, the last one that a record can have at most."""
    return min(INT64_MAX, now_ms + period_ms)
