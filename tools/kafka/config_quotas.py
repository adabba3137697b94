"""`ottla configs` for users, clients and IPs: their quotas, and the SCRAM credentials of users.

Owns the configs that each entity type has, and their output. A password is hashed before it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ...client.admin.admin import (
    ANY_NAME,
    Admin,
    QuotaEntity,
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
    checked,
    quota_entity,
)
from ...client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ...protocol.errors import ErrorCode
from ...protocol.text import java_double
from .admin_command import CannotDo, Out, message, text_of

USERS, CLIENTS, IPS = "users", "clients", "ips"
QUOTA_TYPES = {USERS: "user", CLIENTS: "client-id", IPS: "ip"}
SHOWN = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}
QUOTAS = frozenset({"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"})
IP_QUOTAS = frozenset({"connection_creation_rate"})
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
# The configs of an entity, and what they are called in an error; of a user with a client id those of the client id.
POSSIBLE = {
    IPS: (IP_QUOTAS, "connection quota"),
    CLIENTS: (QUOTAS, "quota"),
    USERS: (QUOTAS | MECHANISMS.keys(), "quota and SCRAM credential"),
}
CREDENTIAL = re.compile(r"(?:iterations=(-?[0-9]{1,10}),)?password=(.*)")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # the syntax of a finite double in Java
DEFAULT_ITERATIONS, LEAST_ITERATIONS = 4096, 4096
Entity = dict[str, str | None]
"""Entity names by `USERS`, `CLIENTS` and `IPS`; None is the default entity."""
Changes = Mapping[str, str | None]
"""Values by config name; None deletes a config."""


def check_changes(entity: Entity, changes: Changes) -> list[ScramUpsertion | ScramDeletion]:
    """Returns the credential changes; none for quotas. Raises CannotDo for a config that the entity does not have."""
    kind = next(kind for kind in POSSIBLE if kind in entity)
    known, what = POSSIBLE[kind]
    if unknown := [key for key in changes if key not in known]:
        raise CannotDo(f"Only {what} configs are possible for '{kind}'. Unexpected config names: {','.join(unknown)}")
    scram = [key for key in changes if key in MECHANISMS]
    if scram and len(scram) < len(changes):
        raise CannotDo(f"Cannot alter both quota and SCRAM credential configs simultaneously for '{USERS}'.")
    if not scram:
        for key, value in changes.items():
            _quota(key, value)
        return []
    user = entity[USERS]
    if user is None:
        raise CannotDo("The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials.")
    return [_credential(user, key, changes[key]) for key in scram]


def _quota(key: str, value: str | None) -> float | None:
    if value is None:
        return None
    if not NUMBER.fullmatch(value.strip()):
        raise CannotDo(f"Cannot parse quota configuration value for {key}: {value}")
    return float(value)


def _credential(user: str, name: str, value: str | None) -> ScramUpsertion | ScramDeletion:
    """Parses `[iterations=N,]password=...`. Raises CannotDo; its text does not contain the password."""
    if value is None:
        return ScramDeletion(user, MECHANISMS[name])
    match = CREDENTIAL.fullmatch(value)
    if match is None:
        raise CannotDo(f"Invalid credential property {name}: expected [iterations=N,password=SECRET]")
    iterations = DEFAULT_ITERATIONS if match[1] in (None, "-1") else int(match[1])
    if iterations < LEAST_ITERATIONS:
        raise CannotDo(f"Iterations {iterations} is less than the minimum {LEAST_ITERATIONS} required for {name}")
    return ScramUpsertion(user, MECHANISMS[name], match[2], iterations)


async def alter(
    admin: Admin, entity: Entity, changes: Changes, scram: Sequence[ScramUpsertion | ScramDeletion]
) -> None:
    """Alters credentials if `scram` has some, otherwise quotas. Raises CannotDo and ClientError."""
    if scram:
        checked(await admin.alter_user_scram_credentials(scram))
        return
    deleted = [key for key, value in changes.items() if value is None]
    whom = quota_entity({QUOTA_TYPES[kind]: name for kind, name in entity.items()})
    if deleted:
        known = (await admin.describe_client_quotas(dict(whom), strict=True)).get(whom, {})
        unknown = [key for key in deleted if key not in known]
        if unknown:
            raise CannotDo(f"Invalid config(s): {','.join(unknown)}")
    checked(await admin.alter_client_quotas({whom: {key: _quota(key, value) for key, value in changes.items()}}))


async def describe(admin: Admin, kinds: Sequence[str], entity: Entity, out: Out) -> None:
    """Prints the quotas of entities of these types; for users alone also their credentials."""
    wanted = {QUOTA_TYPES[kind]: entity.get(kind, ANY_NAME) for kind in kinds}
    quotas = await admin.describe_client_quotas(wanted, strict=True)
    stored: dict[str, tuple[ScramCredential, ...] | ClientError] = {}
    if list(kinds) == [USERS] and entity.get(USERS, "") is not None:
        names = [name for name in entity.values() if name is not None]
        try:
            stored = await admin.describe_user_scram_credentials(names or None)
        except UnsupportedVersion:  # Kafka 2.6 has the quota API, 2.7 the one for credentials
            stored = {}
    no_credentials = ErrorCode.RESOURCE_NOT_FOUND  # is not an error of the command
    stored = {
        user: one for user, one in stored.items() if not (isinstance(one, KafkaError) and one.code == no_credentials)
    }
    document = {
        "quotas": [{"entity": dict(whom), "quotas": limits} for whom, limits in quotas.items()],
        "scram": [
            {
                "user": user,
                "credentials": [] if isinstance(one, ClientError) else [_stored(info) for info in one],
                "error": text_of(one) if isinstance(one, ClientError) else None,
            }
            for user, one in stored.items()
        ],
    }
    for user, one in stored.items():
        if isinstance(one, ClientError):
            out.fail(f"SCRAM credentials of user '{user}' cannot be described: {message(one)}")
    out.show(document, _lines(quotas, stored))


def _stored(info: ScramCredential) -> dict[str, str | int]:
    return {"mechanism": info.mechanism.name.replace("_", "-"), "iterations": info.iterations}


def _lines(
    quotas: Mapping[QuotaEntity, Mapping[str, float]],
    stored: Mapping[str, tuple[ScramCredential, ...] | ClientError],
) -> Iterator[str]:
    for whom, limits in quotas.items():
        who = ", ".join(
            f"the default {SHOWN.get(kind, kind)}" if name is None else f"{SHOWN.get(kind, kind)} '{name}'"
            for kind, name in whom
        )
        values = ", ".join(f"{key}={java_double(limits[key])}" for key in sorted(limits))
        yield f"Quota configs for {who} are {values}\n"
    for user, result in stored.items():
        if not isinstance(result, ClientError):
            known = ", ".join(
                f"{info.mechanism.name.replace('_', '-')}=iterations={info.iterations}" for info in result
            )
            yield f"SCRAM credential configs for user-principal '{user}' are {known}\n"
