"""Calls of `Admin` on SCRAM credentials of users (KIP-554).

Owns the hashing (RFC 5802): the salted password is sent, the password itself is not.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

from ...protocol.limits import INT32_MAX
from ...protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ...protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ...protocol.security.scram import salted_password
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError
from .calls import Calls, failure, of_one
from .types import ScramCredential, ScramDeletion, ScramMechanism, ScramUpsertion

HASHES = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
SALT_BYTES = 32
Credentials = tuple[ScramCredential, ...]


class UserCalls:
    """The user calls of `Admin`."""

    _calls: Calls

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Credentials | ClientError]:
        """Returns the credentials of users, by default of all that have some (Kafka 2.7). Raises ClientError."""
        cls = DescribeUserScramCredentialsRequest
        wanted = None if users is None else [cls.UserName(name=name) for name in dict.fromkeys(users)]

        async def send(
            connection: Connection, keys: list[str]
        ) -> dict[str, dict[str, Credentials | ClientError] | ClientError]:
            response = await connection.request(cls(users=wanted))
            found: dict[str, Credentials | ClientError] = {}
            for result in response.results:
                stored = sorted(
                    ScramCredential(ScramMechanism(info.mechanism), info.iterations) for info in result.credential_infos
                )
                found[result.user] = failure(result.error_code, result.error_message) or tuple(stored)
            return dict.fromkeys(keys, failure(response.error_code, response.error_message) or found)

        return of_one(await self._calls.at_any(["users"], send, timeout_s))

    async def alter_user_scram_credentials(
        self, changes: Iterable[ScramUpsertion | ScramDeletion], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Stores and deletes credentials; returns the outcome by user (Kafka 2.7 and later).

        Raises ConfigError for an invalid mechanism or number of iterations.
        """
        cls = AlterUserScramCredentialsRequest
        deletions: dict[str, list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]] = {}
        upsertions: dict[str, list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]] = {}
        for change in changes:
            if isinstance(change, ScramDeletion):
                deletions.setdefault(change.user, []).append(
                    cls.ScramCredentialDeletion(name=change.user, mechanism=change.mechanism)
                )
                continue
            salt = secrets.token_bytes(SALT_BYTES) if change.salt is None else change.salt
            upsertions.setdefault(change.user, []).append(
                cls.ScramCredentialUpsertion(
                    name=change.user,
                    mechanism=change.mechanism,
                    iterations=change.iterations,
                    salt=salt,
                    salted_password=await asyncio.to_thread(salted, change, salt),
                )
            )

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            request = cls(
                deletions=[one for user in left for one in deletions.get(user, ())],
                upsertions=[one for user in left for one in upsertions.get(user, ())],
            )
            response = await connection.request(request)
            return {result.user: failure(result.error_code, result.error_message) for result in response.results}

        return await self._calls.at_controller(dict.fromkeys([*deletions, *upsertions]), send, timeout_s)


def salted(wanted: ScramUpsertion, salt: bytes) -> bytes:
    """Returns the SaltedPassword of RFC 5802. Raises ConfigError."""
    name = HASHES.get(wanted.mechanism)
    if name is None:
        raise ConfigError(
            f"mechanism must be one of {', '.join(known.name for known in HASHES)}, not {wanted.mechanism!r}"
        )
    if not 0 < wanted.iterations <= INT32_MAX:
        raise ConfigError(f"iterations must be above 0, not {wanted.iterations}")
    return salted_password(name, wanted.password, salt, wanted.iterations)
