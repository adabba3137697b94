"""Access control entries: storage in `__cluster_metadata-0`, and look-ups.

Looks entries up by filter, for the three ACL APIs, and by resource name, for an authorizer (KIP-11, KIP-140, KIP-290,
KIP-801). `standard.py` decides by the entries.

An entry has an id, which only its record and the record that removes it contain. A change is validated as a whole, then
made durable, then applied.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from ...protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ...protocol.named import NamedTuple
from ...protocol.records import steps
from ...protocol.records.steps import Steps
from ..errors import Refused
from ..metadata.log import CHANGES_MAX, TOO_MANY_CHANGES

if TYPE_CHECKING:
    from ..metadata.log import MetadataLog

RECORDS = (AccessControlEntryRecord, RemoveAccessControlEntryRecord)
"""Records of the metadata log that `Acls` applies."""
STEP_ENTRIES = 500
WILDCARD = "*"
"""As the name of a literal pattern: every resource of its type. As a host: every host."""


class Acl(NamedTuple):
    """An access control entry; the numbers are those of `protocol.acls`."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """A filter of entries; None, and ANY in place of a number, match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission_type: int = PermissionType.ANY

    def matches(self, acl: Acl) -> bool:
        """Returns whether the entry matches. The pattern type MATCH matches the patterns that apply to the named
        resource; an unknown number matches nothing.
        """
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission_type in (PermissionType.ANY, acl.permission_type)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type != PatternType.MATCH:
            is_of_type = self.pattern_type in (PatternType.ANY, acl.pattern_type)
            return is_of_type and self.resource_name in (None, acl.resource_name)
        if self.resource_name is None:
            return True
        if acl.pattern_type == PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


class _OfType:
    """The entries of one resource type, by (pattern type, name), and the names of the prefixed patterns, sorted."""

    __slots__ = ("by_pattern", "prefixes")

    def __init__(self) -> None:
        self.by_pattern: dict[tuple[int, str], dict[Acl, None]] = {}
        self.prefixes: list[str] = []

    def add(self, acl: Acl) -> None:
        pattern = acl.pattern_type, acl.resource_name
        of_pattern = self.by_pattern.get(pattern)
        if of_pattern is None:
            of_pattern = self.by_pattern[pattern] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                insort(self.prefixes, acl.resource_name)
        of_pattern[acl] = None

    def drop(self, acl: Acl) -> None:
        pattern = acl.pattern_type, acl.resource_name
        of_pattern = self.by_pattern[pattern]
        del of_pattern[acl]
        if not of_pattern:
            del self.by_pattern[pattern]
            if acl.pattern_type == PatternType.PREFIXED:
                del self.prefixes[bisect_left(self.prefixes, acl.resource_name)]

    def named(self, name: str) -> Iterator[Acl]:
        """Yields the entries of the patterns with this exact name."""
        yield from self.by_pattern.get((PatternType.LITERAL, name), ())
        yield from self.by_pattern.get((PatternType.PREFIXED, name), ())

    def of_resource(self, name: str) -> Iterator[Acl]:
        """Yields the entries of all patterns that match a resource name."""
        yield from self.by_pattern.get((PatternType.LITERAL, name), ())
        if name != WILDCARD:
            yield from self.by_pattern.get((PatternType.LITERAL, WILDCARD), ())
        if self.prefixes:
            for prefix in prefixes_of(name, self.prefixes):
                yield from self.by_pattern[PatternType.PREFIXED, prefix]


class Acls:
    """All entries of a cluster. At startup pass the records of the metadata log to `replay`.

    `revision` increases with every change; caches derived from the entries compare it.
    """

    def __init__(self, log: MetadataLog, new_id: Callable[[], bytes]) -> None:
        self._log = log
        self._new_id = new_id
        self._ids: dict[Acl, bytes] = {}
        self._by_id: dict[bytes, Acl] = {}
        self._by_type: dict[int, _OfType] = {}
        self._by_principal: dict[str, dict[Acl, None]] = {}
        self.revision = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._ids)

    def replay(self, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        self.revision += 1
        if isinstance(record, RemoveAccessControlEntryRecord):
            acl = self._by_id.pop(record.id, None)
            if acl is not None:
                del self._ids[acl]
                self._by_type[acl.resource_type].drop(acl)
                del self._by_principal[acl.principal][acl]
                if not self._by_principal[acl.principal]:
                    del self._by_principal[acl.principal]
            return
        acl = Acl(*(getattr(record, part) for part in Acl._fields))
        self._ids[acl] = record.id
        self._by_id[record.id] = acl
        self._by_type.setdefault(acl.resource_type, _OfType()).add(acl)
        self._by_principal.setdefault(acl.principal, {})[acl] = None

    def add(self, acls: Iterable[Acl], now_ms: int) -> None:
        """Adds the entries that do not exist yet. Raises Refused for too many at once, and StorageError."""
        steps.run(self.adding(acls, now_ms))

    def adding(self, acls: Iterable[Acl], now_ms: int) -> Steps[None]:
        """`add` in steps; the change happens in the last one."""
        requested = dict.fromkeys(acls)

        def records() -> Steps[list[Any]]:
            new = [acl for acl in requested if acl not in self._ids]
            if len(new) > CHANGES_MAX:
                raise Refused(ErrorCode.POLICY_VIOLATION, TOO_MANY_CHANGES)
            made: list[Any] = []
            for acl in new:
                if len(made) % STEP_ENTRIES == STEP_ENTRIES - 1:
                    yield None
                made.append(AccessControlEntryRecord(id=self._new_id(), **acl._asdict()))
            return made

        yield from self._change(records, now_ms)

    def remove(self, found: Iterable[Acl], now_ms: int) -> None:
        """Removes entries. Raises Refused for too many at once, and StorageError."""
        steps.run(self.removing(found, now_ms))

    def removing(self, found: Iterable[Acl], now_ms: int) -> Steps[None]:
        """`remove` in steps; the change happens in the last one."""
        going = dict.fromkeys(found)
        if len(going) > CHANGES_MAX:
            text = f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation."
            raise Refused(ErrorCode.INVALID_REQUEST, text)

        def records() -> Steps[list[Any]]:
            made = [RemoveAccessControlEntryRecord(id=self._ids[acl]) for acl in going if acl in self._ids]
            if len(made) > STEP_ENTRIES:
                yield None
            return made

        yield from self._change(records, now_ms)

    def _change(self, records: Callable[[], Steps[list[Any]]], now_ms: int) -> Steps[None]:
        """Writes the records and applies them.

        If another request changes the ACLs between two steps, the records are built again: otherwise an entry could get
        two ids, or an entry could be removed twice.
        """
        while True:
            revision = self.revision
            made = yield from records()
            if not made:
                return
            prepared = yield from self._log.prepare_steps(made, now_ms)
            if revision == self.revision:
                break
        self._log.write(prepared, now_ms)
        for record in made:
            self.replay(record)

    def find(self, wanted: AclFilter) -> list[Acl]:
        return [acl for acl in self._candidates(wanted) if wanted.matches(acl)]

    def _candidates(self, wanted: AclFilter) -> Iterator[Acl]:
        """Yields a superset of the matching entries, small if the filter names a resource or a principal: a request may
        contain thousands of filters.
        """
        kind, name = wanted.resource_type, wanted.resource_name
        if name is None and wanted.principal is not None:
            yield from self._by_principal.get(wanted.principal, ())
            return
        for of_type in list(self._by_type.values()) if kind == ResourceType.ANY else self._some(kind):
            if name is None:
                yield from chain.from_iterable(of_type.by_pattern.values())
            elif wanted.pattern_type == PatternType.MATCH:
                yield from of_type.of_resource(name)
            else:
                yield from of_type.named(name)

    def _some(self, resource_type: int) -> Sequence[_OfType]:
        found = self._by_type.get(resource_type)
        return () if found is None else (found,)

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        """Yields the entries of all patterns of a resource type."""
        for of_type in self._some(resource_type):
            yield from chain.from_iterable(of_type.by_pattern.values())

    def of_resource(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Yields the entries of all patterns that match the resource."""
        found = self._by_type.get(resource_type)
        return iter(()) if found is None else found.of_resource(name)


def prefixes_of(name: str, names: Sequence[str]) -> Iterator[str]:
    """Yields the sorted `names` that are a prefix of `name`, longest first.

    Any name sorted between a prefix of `name` and `name` itself begins with that prefix. So the last name that is <=
    `name` is a prefix of it, or all prefixes of `name` are prefixes of the part that the two have in common.
    """
    end = len(names)
    while end := bisect_right(names, name, 0, end):
        last = names[end - 1]
        if name.startswith(last):
            yield last
            end -= 1
        else:
            name = name[: next(n for n, (one, other) in enumerate(zip(last, name, strict=False)) if one != other)]
