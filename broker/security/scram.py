"""SCRAM credentials: the keys stored in place of passwords, and the checks of changes (RFC 5802, KIP-554).

Owns the credentials by user and mechanism, stored as Kafka's records (KIP-900); a change is durable before it is
visible. Passwords never reach the broker: clients send RFC 5802's SaltedPassword, and the keys derived from it can
verify a client but not impersonate one. `sasl/mechanisms.py` authenticates by them.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from ...protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ...protocol.named import NamedTuple
from ...protocol.records.steps import Steps
from ...protocol.security import scram
from ..errors import Refused

if TYPE_CHECKING:
    from ..metadata.log import MetadataLog

Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384
TWICE = "A user credential cannot be altered twice in the same request"
NOT_THERE = "Attempt to delete a user credential that does not exist"
NO_NAME = "Username must not be empty"
SALT_BYTES = 16
STEP_ENTRIES = 500
MODELS_MAX = 16
_JAVA_DIGITS, _JAVA_BITS = b"0123456789abcdefghijklmnopqrstuvwxyz", 130
_JAVA_SALT = re.compile(rb"[0-9a-z]{23,26}")
"""The salts of Kafka's admin client: a random number of `_JAVA_BITS` bits as text."""


class Mechanism(IntEnum):
    """Mechanism numbers in the protocol."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


HASHES: dict[int, str] = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}


class Credential(NamedTuple):
    """The stored keys of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def made(cls, mechanism: Mechanism, salt: bytes, salted_password: bytes, iterations: int) -> Credential:
        """Derives the keys from SaltedPassword (RFC 5802, section 3)."""
        name = HASHES[mechanism]
        stored_key = scram.stored_key(name, scram.client_key(name, salted_password))
        return cls(salt, stored_key, scram.server_key(name, salted_password), iterations)

    @classmethod
    def of_password(
        cls, mechanism: Mechanism, password: str, salt: bytes | None = None, iterations: int = ITERATIONS_MIN
    ) -> Credential:
        """Derives the keys from a password, which takes milliseconds; by default with a random salt."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        salted = scram.salted_password(HASHES[mechanism], password, salt, iterations)
        return cls.made(mechanism, salt, salted, iterations)


def decoy(secret: bytes, name: str, hash_name: str, models: Sequence[Credential] = ()) -> Credential:
    """Returns a credential that no password fits, the same for each call.

    Its salt has the form of one of `models`, and it has the same iterations; without models they are those of a
    credential that the broker makes.
    """
    text = name.encode(errors="surrogatepass")
    seed = hmac.digest(secret, b"salt " + text, "sha512")
    key = hmac.digest(secret, b"key " + text, hash_name)
    if not models:
        return Credential(seed[:SALT_BYTES], key, key, ITERATIONS_MIN)
    model = max(models, key=lambda one: hashlib.sha256(seed + one.server_key).digest())
    return Credential(_salt_like(model.salt, seed), key, key, model.iterations)


def _salt_like(salt: bytes, seed: bytes) -> bytes:
    if _JAVA_SALT.fullmatch(salt) is None:
        return hashlib.shake_256(seed).digest(len(salt))
    number, digits = int.from_bytes(seed, "big") >> (8 * len(seed) - _JAVA_BITS), bytearray()
    while number:
        number, digit = divmod(number, len(_JAVA_DIGITS))
        digits.append(_JAVA_DIGITS[digit])
    return bytes(reversed(digits))


class ScramCredentials:
    """The credentials of all users. `secret` is one that clients do not have, the same over restarts."""

    def __init__(self, metadata: MetadataLog, secret: bytes) -> None:
        self._metadata = metadata
        self._secret = secret
        self._users: dict[str, dict[int, Credential]] = {}
        self._models: dict[int, list[Credential]] = {}

    @property
    def users(self) -> Iterable[str]:
        """Names of users with credentials, sorted."""
        return sorted(self._users)

    def of(self, user: str) -> Mapping[int, Credential]:
        """Returns the credentials of a user by mechanism; empty for an unknown user."""
        found = self._users.get(user, {})
        return {mechanism: found[mechanism] for mechanism in sorted(found)}

    def find(self, user: str, mechanism: Mechanism) -> Credential | None:
        return self._users.get(user, {}).get(mechanism)

    def decoy(self, user: str, mechanism: Mechanism) -> Credential:
        """Returns a credential for an unknown user, with the form of those that there are."""
        models = self._models.get(mechanism)
        if models is None:
            names = heapq.nsmallest(MODELS_MAX, (name for name, known in self._users.items() if mechanism in known))
            models = self._models[mechanism] = [self._users[name][mechanism] for name in names]
        return decoy(self._secret, user, HASHES[mechanism], models)

    def replay(self, record: UserScramCredentialRecord | RemoveUserScramCredentialRecord) -> None:
        self._models.clear()
        if isinstance(record, UserScramCredentialRecord):
            made = Credential(bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations)
            self._users.setdefault(record.name, {})[record.mechanism] = made
        elif (found := self._users.get(record.name)) is not None:
            found.pop(record.mechanism, None)
            if not found:
                del self._users[record.name]

    def alter(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion], now_ms: int, *, once_a_user: bool
    ) -> Steps[dict[str, Refused | None]]:
        """Applies the valid changes, in steps, as one batch in the last step; returns the error of each user, or None.

        Raises StorageError, and then nothing has changed. With `once_a_user` a request may name each user once,
        otherwise each mechanism of a user once.
        """
        refused = self._refused_once(deletions, upsertions) if once_a_user else self._refused(deletions, upsertions)
        records: list[UserScramCredentialRecord | RemoveUserScramCredentialRecord] = []
        results: dict[str, Refused | None] = {}
        for gone in deletions:
            if gone.name not in refused:
                results[gone.name] = None
                records.append(RemoveUserScramCredentialRecord(name=gone.name, mechanism=gone.mechanism))
        for index, wanted in enumerate(upsertions):
            if index % STEP_ENTRIES == STEP_ENTRIES - 1:
                yield None
            if wanted.name not in refused and not wanted.salted_password:
                # No key can be derived: an unexpected error in Kafka, without a message.
                refused[wanted.name] = Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            elif wanted.name not in refused:
                results[wanted.name] = None
                mechanism = Mechanism(wanted.mechanism)
                made = Credential.made(mechanism, wanted.salt, wanted.salted_password, wanted.iterations)
                records.append(_record(wanted.name, mechanism, made))
        if records:
            yield from self._metadata.append_steps(records, now_ms)
        for record in records:
            self.replay(record)
        return {**results, **refused}

    def ensure(self, passwords: Mapping[str, str], now_ms: int) -> None:
        """Stores the passwords of these users for all mechanisms, where their credentials are not those already. Raises
        StorageError."""
        records = [
            _record(user, mechanism, Credential.of_password(mechanism, password))
            for user, password in passwords.items()
            for mechanism in Mechanism
            if (known := self.find(user, mechanism)) is None
            or known != Credential.of_password(mechanism, password, known.salt, known.iterations)
        ]
        if records:
            self._metadata.append(records, now_ms)
        for record in records:
            self.replay(record)

    def _refused_once(self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> dict[str, Refused]:
        """Validates like a KRaft controller: each change in order, and the first error of a user counts."""
        refused: dict[str, Refused] = {}
        sound: set[str] = set()
        for change in (*deletions, *upsertions):
            if change.name in refused:
                continue
            if change.name in sound:
                refused[change.name] = Refused(ErrorCode.DUPLICATE_RESOURCE, TWICE)
            elif (found := _problem(change) or self._missing(change)) is not None:
                refused[change.name] = found
            else:
                sound.add(change.name)
        return refused

    def _refused(self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> dict[str, Refused]:
        """Validates like brokers with ZooKeeper: invalid credentials, then duplicates, then missing ones."""
        changes = (*deletions, *upsertions)
        refused = {change.name: found for change in changes if (found := _problem(change)) is not None}
        seen: set[tuple[str, int]] = set()
        twice: set[str] = set()
        for change in changes:
            if (key := (change.name, change.mechanism)) in seen:
                twice.add(change.name)
            seen.add(key)
        for name in sorted(twice - refused.keys()):
            refused[name] = Refused(ErrorCode.DUPLICATE_RESOURCE, TWICE)
        for gone in deletions:
            if gone.name not in refused and (found := self._missing(gone)) is not None:
                refused[gone.name] = found
        # Kafka derives the keys of all remaining changes together, so a failed derivation is an error for all of them.
        left = [change for change in changes if change.name not in refused]
        if any(isinstance(change, Upsertion) and not change.salted_password for change in left):
            refused.update((change.name, Refused(ErrorCode.UNKNOWN_SERVER_ERROR)) for change in left)
        return refused

    def _missing(self, change: Deletion | Upsertion) -> Refused | None:
        """Returns the error of a deletion without a credential to delete."""
        if isinstance(change, Upsertion) or change.mechanism in self._users.get(change.name, {}):
            return None
        return Refused(ErrorCode.RESOURCE_NOT_FOUND, NOT_THERE)


def _problem(change: Deletion | Upsertion) -> Refused | None:
    """Returns the error of an invalid credential, or None."""
    if not change.name:
        return Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, NO_NAME)
    if change.mechanism not in HASHES:
        return Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Upsertion) and not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        which = "few" if change.iterations < ITERATIONS_MIN else "many"
        return Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {which} iterations")
    return None


def _record(user: str, mechanism: Mechanism, made: Credential) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(name=user, mechanism=mechanism, **made._asdict())
