"""Configured quotas: validation, storage in the metadata log, and description.

An entity is a user, a client id, both, or an address; a null name is the default entity. Owns Kafka's checks and error
messages: those of the KRaft controller and, for older releases, those of brokers with ZooKeeper (KIP-546, KIP-612).
Does not measure rates.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import ClientQuotaRecord
from ...protocol.limits import INT32_MAX
from ...protocol.named import NamedTuple
from ...protocol.records.steps import Steps
from ..errors import Refused
from ..java_hash import hash_ordered
from ..metadata.log import CHANGES_MAX, TOO_MANY_CHANGES
from .limits import ABSENT, AddressLimits, ClientEntity, ClientLimits

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_TYPES = (CLIENT_ID, USER, IP)  # in the order of Kafka's responses

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION, CONNECTION = "controller_mutation_rate", "connection_creation_rate"
KINDS = {REQUEST: "DOUBLE", PRODUCE: "LONG", FETCH: "LONG", MUTATION: "DOUBLE"}  # in the order of Kafka's responses
ADDRESS_KINDS = {CONNECTION: "INT"}
_MOST = {"LONG": float(2**63), "INT": float(INT32_MAX)}
_WHOLE_WITHIN = 1e-6
_ORDER = {key: number for number, key in enumerate((CONNECTION, *KINDS))}

EXACT, OF_DEFAULT, ANY = 0, 1, 2
STEP_ENTRIES = 1500

Entity = tuple[tuple[str, str | None], ...]
"""(type, name) pairs, each type once, in the order of `_TYPES`."""
Checks = Literal["zookeeper", "kraft", "finite"]


def entity_of(pairs: Mapping[str, str | None]) -> Entity:
    """Returns the entity for pairs of known types."""
    return tuple((kind, pairs[kind]) for kind in _TYPES if kind in pairs)


class Alteration(NamedTuple):
    """A requested change of one entity: pairs (key, value), or (key, None) to remove it, in order."""

    entity: Mapping[str, str | None]
    ops: Sequence[tuple[str, float | None]]


class Component(NamedTuple):
    """A component of a DescribeClientQuotas filter."""

    kind: str
    match_type: int
    match: str | None


class StoredQuotas:
    """All quotas by entity. `replay` applies records; `alter` returns the records of a change without applying them."""

    def __init__(self, checks: Checks) -> None:
        self._checks: Checks = checks
        self._quotas: dict[Entity, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._quotas)

    def replay(self, record: ClientQuotaRecord) -> None:
        entity = entity_of({part.entity_type: part.entity_name for part in record.entity})
        values = self._quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self._quotas[entity]

    # --- limits

    def limits(self, key: str, default: float | None = None) -> ClientLimits:
        """Returns the limits of one quota key; `default` is the limit of client ids without a quota."""
        rates: dict[ClientEntity, float] = {} if default is None else {(ABSENT, None): default}
        for entity, values in self._quotas.items():
            names = dict(entity)
            if key in values and IP not in names:
                rates[names.get(USER, ABSENT), names.get(CLIENT_ID, ABSENT)] = values[key]
        return ClientLimits(rates)

    def address_limits(self, addresses: Mapping[str, str]) -> AddressLimits:
        """Returns the limits of addresses; `addresses` has the resolved host names."""
        rates: dict[str | None, float] = {}
        for name, rate in self._of_addresses():
            found = None if name is None else literal_address(name) or addresses.get(name)
            if name is None or found is not None:
                rates[found] = rate
        return AddressLimits(rates)

    def host_names(self) -> list[str]:
        """Returns the names of address quotas that are host names and need resolving."""
        return [name for name, _ in self._of_addresses() if name is not None and literal_address(name) is None]

    def _of_addresses(self) -> Iterator[tuple[str | None, float]]:
        for entity, values in self._quotas.items():
            if entity[0][0] == IP and CONNECTION in values:
                yield entity[0][1], values[CONNECTION]

    # --- altering

    def alter(
        self, requested: Sequence[Alteration], is_host: Callable[[str], bool]
    ) -> Steps[tuple[list[ClientQuotaRecord], list[tuple[Mapping[str, str | None], Refused | None]]]]:
        """Validates changes, in steps; returns (records to write, result of each entity: None or an error). Applies
        nothing.

        `is_host` returns whether a name is a host name that can be resolved. An entity with an error is left unchanged.
        """
        records: list[ClientQuotaRecord] = []
        results: dict[tuple[tuple[str, str | None], ...], Refused | None] = {}
        changed: dict[Entity, dict[str, float]] = {}
        left = STEP_ENTRIES
        for entity, ops in requested:
            left -= 1 + len(entity) + len(ops)
            if left < 0:
                yield None
                left = STEP_ENTRIES - len(entity)
            name = tuple(sorted(entity.items()))
            try:
                if self._checks != "zookeeper":
                    if name in results or len({key for key, _ in ops}) < len(ops):
                        raise _invalid(f"Ignoring duplicate entity {_shown(entity)}")
                    made = list(self._altered(entity, ops, is_host))
                else:
                    made = list(self._altered_with_zookeeper(entity, ops, is_host, changed))
            except Refused as refused:
                results[name] = refused.with_traceback(None)  # the traceback's frames would keep the request alive
            else:
                results[name] = None
                records += made
                if len(records) > CHANGES_MAX and self._checks != "zookeeper":
                    raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_CHANGES)
        if left < 0:  # one of the last entities has thousands of parts
            yield None
        return records, [(dict(name), refused) for name, refused in results.items()]

    def _altered(
        self,
        requested: Mapping[str, str | None],
        ops: Sequence[tuple[str, float | None]],
        is_host: Callable[[str], bool],
    ) -> Iterator[ClientQuotaRecord]:
        entity, kinds = _checked(requested, is_host, "IP entity shouldnot be combined with User or ClientId")
        now = self._quotas.get(entity, {})
        for key, value in ops:
            if value is None:
                if key in now:
                    yield _record(entity, key, None)
                continue
            _check_value(kinds, key, value, finite=self._checks == "finite")
            if key not in now or now[key] != value:
                yield _record(entity, key, value)

    def _altered_with_zookeeper(
        self,
        requested: Mapping[str, str | None],
        ops: Sequence[tuple[str, float | None]],
        is_host: Callable[[str], bool],
        changed: dict[Entity, dict[str, float]],
    ) -> Iterator[ClientQuotaRecord]:
        """Yields the records of an entity's change, validated like in brokers with ZooKeeper.

        `changed` has the entities that the same request changed before: an entity may occur again.
        """
        entity, kinds = _checked(requested, is_host, "IP entity should not be used with user/client ID entity.")
        now = changed.get(entity, self._quotas.get(entity, {}))
        then = dict(now)
        for key, value in ops:
            if value is None:
                then.pop(key, None)
            elif key not in kinds:
                raise _invalid(f"Invalid configuration key {key}")
            elif kinds[key] == "DOUBLE":
                then[key] = value
            else:
                then[key] = _whole(key, kinds[key], value)
        changed[entity] = then
        for key in now.keys() - then.keys():
            yield _record(entity, key, None)
        for key, value in then.items():
            if now.get(key) != value:
                yield _record(entity, key, value)

    # --- describing

    def describe(self, components: Sequence[Component], *, strict: bool) -> list[tuple[Entity, dict[str, float]]]:
        """Returns the entities that match all components, with `strict` only those without further parts. Raises
        Refused.
        """
        check = _check_filter if self._checks != "zookeeper" else _check_filter_with_zookeeper
        check(components)
        found: list[tuple[Entity, dict[str, float]]] = []
        for entity, values in self._quotas.items():
            names = dict(entity)
            if not (strict and len(names) != len(components)) and all(_matches(one, names) for one in components):
                found.append((entity, dict(sorted(values.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))))))
        return found


def _matches(component: Component, names: Mapping[str, str | None]) -> bool:
    kind, match_type, match = component
    if kind not in names:
        return False
    return match_type == ANY or names[kind] == (match if match_type == EXACT else None)


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)


def _record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    part = ClientQuotaRecord.EntityData
    return ClientQuotaRecord(
        entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


def _shown(entity: Mapping[str, str | None]) -> str:
    """Formats the entity like Java's toString."""
    pairs = ((kind, entity[kind]) for kind in hash_ordered(entity))
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in pairs)
    return f"ClientQuotaEntity(entries={{{names}}})"


def _checked(
    requested: Mapping[str, str | None], is_host: Callable[[str], bool], problem: str
) -> tuple[Entity, Mapping[str, str]]:
    """Returns an entity and the types of its quota keys. Raises Refused, with `problem` for an address and others."""
    if not requested:
        raise _invalid("Invalid empty client quota entity")
    for kind in hash_ordered(requested):
        name = requested[kind]
        if kind not in _TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP not in requested:
        return entity_of(requested), KINDS
    if len(requested) > 1:
        raise _invalid(f"Invalid quota entity combination, {problem}")
    name = requested[IP]
    if name is not None and literal_address(name) is None and not is_host(name):
        raise _invalid(f"{name} is not a valid IP or resolvable host.")
    return entity_of(requested), ADDRESS_KINDS


def _check_value(kinds: Mapping[str, str], key: str, value: float, *, finite: bool) -> None:
    if key not in kinds:
        raise _invalid(f"Invalid configuration key {key}")
    if finite and not math.isfinite(value):
        raise _invalid(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    kind = kinds[key]
    if kind == "DOUBLE":
        return
    if value > _MOST[kind]:
        raise _invalid(f"Proposed value for {key} is too large for {'an INT' if kind == 'INT' else 'a LONG'}.")
    if math.fmod(value, 1.0) > _WHOLE_WITHIN:
        raise _invalid(f"{key} cannot be a fractional value.")


def _whole(key: str, kind: str, value: float) -> float:
    most = _MOST[kind]
    whole = 0.0 if math.isnan(value) else float(math.trunc(max(-most, min(most, value + _WHOLE_WITHIN))))
    if abs(whole - value) > _WHOLE_WITHIN:
        raise _invalid(f"Configuration {key} must be a {kind} value")
    return whole


def _check_filter(components: Sequence[Component]) -> None:
    seen: set[str] = set()
    for kind, match_type, match in components:
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in seen:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(match_type, match)
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )


def _check_match(match_type: int, match: str | None) -> None:
    if match_type not in (EXACT, OF_DEFAULT, ANY):
        raise _invalid(f"Unknown match type {match_type}")
    if match_type == EXACT and match is None:
        raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != EXACT and match is not None:
        name = "DEFAULT" if match_type == OF_DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{name}, but also specified a match string.")


def _check_filter_with_zookeeper(components: Sequence[Component]) -> None:
    if any(
        one.match_type not in (EXACT, OF_DEFAULT, ANY) or (one.match_type == EXACT and one.match is None)
        for one in components
    ):
        # In Kafka parsing the request fails, which is an unexpected error.
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    seen: set[str] = set()
    for kind, _, _ in components:
        if not kind:
            raise _invalid("Unexpected empty filter component entity type")
        if kind not in _TYPES:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in seen:
            raise _invalid(f"Duplicate {'client' if kind == CLIENT_ID else kind} filter component entity type")
        seen.add(kind)
    if IP in seen and len(seen) > 1:
        raise _invalid(
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component."
        )


def literal_address(name: str) -> str | None:
    """Returns an address in canonical form, without its interface, or None if `name` is no literal address."""
    try:
        address = ipaddress.ip_address(name.partition("%")[0] if ":" in name else name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def look_up(name: str) -> str | None:
    """Resolves a host name; blocks, possibly for seconds. Returns None if there is no such host."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    return literal_address(str(found[0][4][0])) if found else None


def alteration(entry: Any) -> Alteration:
    """Returns the change in an AlterClientQuotasRequest's EntryData; if a type occurs twice the last name counts."""
    entity = {part.entity_type: part.entity_name for part in entry.entity}
    return Alteration(entity, [(op.key, None if op.remove else op.value) for op in entry.ops])
