"""Configs and access control entries as plain values, for operations by the rules of IncrementalAlterConfigs and of the
APIs for access control lists.

The rules of configs and their error texts are in `broker/handlers/configs/resources.py`. Access control lists are not
checked, as everywhere in the control plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ...protocol.acls import CODES, words
from ...protocol.config_codes import ConfigType
from ...protocol.errors import ErrorCode
from ..config.definitions import format_value, read_value
from ..config.docs import documentation
from ..connection_info import ConnectionInfo
from ..context import RequestContext
from ..errors import Refused
from ..handlers.configs import resources
from ..handlers.configs.resources import Change
from ..metrics.client_ledger import ClientLibrary
from ..security.acls import Acl, AclFilter, Acls
from ..security.entries import refusals
from .views import AclEntry, ConfigInfo, config_texts

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..config.definitions import Fact
    from ..config.values import ConfigEntry

VERSION = 1  # of IncrementalAlterConfigs
LISTENER = "CONTROL"


def config_info(entry: ConfigEntry, fact: Fact | None) -> ConfigInfo:
    """Returns a config as a plain value."""
    default = None if fact is None or fact.default is None or fact.sensitive else fact.default
    if fact is not None and default is not None:
        default = format_value(fact, read_value(fact, default))
    return ConfigInfo(
        name=entry.name,
        value=entry.value,
        default=default,
        source=entry.source.text,
        is_read_only=entry.read_only,
        is_sensitive=entry.sensitive,
        type=entry.type.name,
        documentation=None if entry.type is ConfigType.UNKNOWN else documentation(entry.name),
        synonyms=tuple((one.name, one.value, one.source.text) for one in entry.synonyms),
    )


def changes_of(
    set: Mapping[str, Any] | None,
    delete: Iterable[str],
    append: Mapping[str, Any] | None,
    subtract: Mapping[str, Any] | None,
) -> list[Change]:
    """Returns changes in the form of IncrementalAlterConfigs; values may be of any type, as a test writes them. Raises
    TypeError.
    """
    if isinstance(delete, str):
        raise TypeError(f"delete is a list of names, not {delete!r}")
    listed = (
        (resources.SET, config_texts(set or {}).items()),
        (resources.DELETE, [(name, None) for name in delete]),
        (resources.APPEND, config_texts(append or {}).items()),
        (resources.SUBTRACT, config_texts(subtract or {}).items()),
    )
    return [Change(name, operation, value) for operation, pairs in listed for name, value in pairs]


def request_context(state: BrokerState) -> RequestContext:
    """Returns the context of a request to the first node. All nodes have the same configs: they are one broker."""
    connection_info = ConnectionInfo(LISTENER, "", "", ClientLibrary(LISTENER, None, None, True), state.nodes.ids[0])
    return RequestContext(state, VERSION, 0, "", connection_info)


# Access control entries

ALL_ACLS = AclEntry()
"""The filter that matches every entry."""
ACL_PARTS = tuple(asdict(ALL_ACLS))
ACLS_MAX = 10_000  # in one response


def entries_of(state: BrokerState) -> Acls:
    """Returns the entries of a broker. Raises Refused if it has no authorizer."""
    if state.authorizer is None:
        raise Refused(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    return state.acls


def check_entries(state: BrokerState, acls: list[Acl]) -> None:
    """Raises Refused for an entry that CreateAcls refuses."""
    for refused in refusals(acls, state.profile.behaviour, cidr_hosts=state.features.cidr_hosts):
        if refused is not None:
            raise refused


def entry_of(acl: Acl) -> AclEntry:
    """Returns an entry as a plain value."""
    parts = zip(ACL_PARTS, acl, strict=True)
    return AclEntry(*(_name(CODES[name], part) if name in CODES else str(part) for name, part in parts))


def _name(of: type[IntEnum], number: Any) -> str:
    """Returns Kafka's name of a code; the number itself for a code that a later release has written."""
    try:
        return of(number).name
    except ValueError:
        return str(number)


def acl_of(entry: AclEntry) -> Acl:
    """Returns the entry as the broker's authorizer has it. Raises Refused if a part is missing."""
    resource_name, principal, host = entry.resource_name or "", entry.principal or "", entry.host or "*"
    return Acl(*_parts(replace(entry, resource_name=resource_name, principal=principal, host=host)))


def filter_of(wanted: AclEntry) -> AclFilter:
    """Returns the filter that an entry with missing parts describes. Raises Refused."""
    return AclFilter(*_parts(wanted, in_filter=True))


def _parts(entry: AclEntry, *, in_filter: bool = False) -> Iterator[Any]:
    """Yields the parts of an entry or a filter, with numbers for Kafka's names. Raises Refused."""
    for part, text in asdict(entry).items():
        if part not in CODES:
            yield text
            continue
        kind = CODES[part]
        name = "ANY" if text is None and in_filter else text
        known = words(kind, in_filter=in_filter)
        if name not in known:
            problem = f"INVALID_REQUEST: {part} is {text!r}, not one of {', '.join(known)}"
            raise Refused(ErrorCode.INVALID_REQUEST, problem)
        yield kind[name]
