"""`ottla acls`: lists, adds and removes access control lists, with the flags and output of kafka-acls.

Owns the flags and the layout of that tool. --remove prompts for a confirmation without --force. `--json` prints
`{"acls": [...]}`, `{"added": [...], "existing": [...]}` or `{"removed": [...]}`; an entry has `resource_type,
resource_name, pattern_type, principal, host, operation, permission`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from enum import Enum

from ...client.admin.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    Admin,
    PatternType,
    PermissionType,
    checked,
)
from ...protocol.acls import CLUSTER_NAME
from ...protocol.acls import OPERATIONS as ON
from ...protocol.arguments import Parser
from .admin_command import Out, admin_parser, check_principals, parsed, run_admin

PROGRAM = "ottla acls"
ACTIONS = {"list": "print entries", "add": "add entries", "remove": "remove entries"}
WILDCARD = "*"
Op = AclOperation
Kind = AclResourceType
OPERATIONS = {
    "".join(word.capitalize() for word in op.name.split("_")): op for op in Op if op not in (Op.UNKNOWN, Op.ANY)
}
RESOURCE_FLAGS = {
    "topic": Kind.TOPIC,
    "group": Kind.GROUP,
    "transactional_id": Kind.TRANSACTIONAL_ID,
    "delegation_token": Kind.DELEGATION_TOKEN,
    "user_principal": Kind.USER,
}
Pattern = tuple[AclResourceType, str, PatternType]
CLUSTER: Pattern = (Kind.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
Entry = tuple[str, str, AclOperation, PermissionType]  # principal, host, operation, permission
Wanted = dict[Pattern, list[Entry]]


def acls(arguments: Sequence[str]) -> int:
    parser = admin_parser(PROGRAM, "List, add and remove access control lists.", ACTIONS)
    for flag in RESOURCE_FLAGS:
        name = flag.replace("_", "-")
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="NAME", help=f"a {name.replace('-', ' ')}"
        )
    parser.add_argument("--cluster", action="store_true")
    patterns = "literal or prefixed; in a filter also any or match"
    parser.add_argument("--resource-pattern-type", default="literal", metavar="TYPE", help=patterns)
    parser.add_argument("--operation", action="append", default=[], metavar="OP", help=", ".join(OPERATIONS))
    for flag in ("allow-principal", "deny-principal", "allow-host", "deny-host"):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar=flag.rpartition("-")[2].upper())
    parser.add_argument(
        "--principal", action="append", default=[], metavar="TYPE:NAME", help="with --list: only these principals"
    )
    parser.add_argument("--producer", action="store_true", help="the operations that a producer needs")
    parser.add_argument("--consumer", action="store_true", help="the operations that a consumer needs")
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: also the operation of an idempotent producer"
    )
    parser.add_argument("--force", action="store_true", help="do not prompt for a confirmation")
    args = parsed(parser, arguments, ACTIONS, _check)
    act = _list if args.list else _add if args.add else _remove
    return run_admin(PROGRAM, args, act, before=_confirm if args.remove and not args.force else None)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    pattern = PatternType.__members__.get(args.resource_pattern_type.upper(), PatternType.UNKNOWN)
    if pattern == PatternType.UNKNOWN:
        parser.error(f"Unknown resource-pattern-type: {args.resource_pattern_type}")
    args.pattern = pattern
    check_principals(parser, (*args.allow_principal, *args.deny_principal, *args.principal))
    roles = args.producer or args.consumer
    denies = args.deny_principal or args.deny_host
    if args.list and (roles or denies or args.allow_principal or args.allow_host):
        parser.error("--list cannot be combined with --producer, --consumer, or allowed or denied principals and hosts")
    if roles and (args.operation or denies):
        parser.error("--producer and --consumer cannot be combined with --operation, --deny-principal or --deny-host")
    if args.principal and not args.list:
        parser.error("The --principal option is only available if --list is set")
    if args.producer and not args.topic:
        parser.error("With --producer you must specify a --topic")
    if args.idempotent and not args.producer:
        parser.error("The --idempotent option is only available if --producer is set")
    others = not args.producer and (args.cluster or args.transactional_id)
    if args.consumer and (not args.topic or not args.group or others):
        parser.error("With --consumer you must specify a --topic and a --group, no --cluster and no --transactional-id")
    patterns: dict[Pattern, None] = {}
    for flag, kind in RESOURCE_FLAGS.items():
        patterns |= dict.fromkeys((kind, name.strip(), pattern) for name in getattr(args, flag))
    if pattern == PatternType.LITERAL and (args.cluster or args.idempotent):
        patterns[CLUSTER] = None
    args.patterns = sorted(patterns)
    if not args.list:
        _check_entries(parser, args)


def _check_entries(parser: Parser, args: argparse.Namespace) -> None:
    if args.add and args.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        name = args.resource_pattern_type
        parser.error(f"A '--resource-pattern-type' value of '{name}' is not valid when adding acls.")
    if not args.patterns:
        parser.error(
            "You must provide at least one resource: --topic, --cluster, --group, --transactional-id or another"
        )
    names = {name.lower(): op for name, op in OPERATIONS.items()}
    operations = [names.get(text.strip().lower()) for text in args.operation or ["All"]]
    if None in operations:
        wrong = args.operation[operations.index(None)]
        parser.error(f"Unknown operation {wrong}: expected one of {', '.join(OPERATIONS)}")
    args.wanted = _wanted(args, [op for op in operations if op is not None])
    for (kind, _, _), entries in args.wanted.items():
        supported = {*ON[kind], Op.ALL}
        if any(entry[2] not in supported for entry in entries):
            listed = ", ".join(name for name, op in OPERATIONS.items() if op in supported)
            parser.error(f"ResourceType {kind.name} only supports operations {listed}")
        if args.add and not entries:
            parser.error("You must specify one of: --allow-principal, --deny-principal when trying to add ACLs.")


def _wanted(args: argparse.Namespace, operations: Sequence[AclOperation]) -> Wanted:
    """Returns the entries for each resource: of --operation, or those that a producer or consumer needs."""
    if not (args.producer or args.consumer):
        return {pattern: _entries(args, operations) for pattern in args.patterns}
    needed: dict[Pattern, list[AclOperation]] = {}
    for pattern in args.patterns:
        kind = pattern[0]
        ops = needed.setdefault(pattern, [])
        if args.producer and kind in (Kind.TOPIC, Kind.TRANSACTIONAL_ID):
            ops += [Op.WRITE, Op.DESCRIBE, *([Op.CREATE] if kind == Kind.TOPIC else [])]
        if args.producer and args.idempotent and kind == Kind.CLUSTER:
            ops.append(Op.IDEMPOTENT_WRITE)
        if args.consumer and kind in (Kind.TOPIC, Kind.GROUP):
            ops += [Op.READ, *([Op.DESCRIBE] if kind == Kind.TOPIC else [])]
    return {pattern: _entries(args, ops) for pattern, ops in needed.items() if ops}


def _entries(args: argparse.Namespace, operations: Iterable[AclOperation]) -> list[Entry]:
    found: dict[Entry, None] = {}
    for permission, principals, hosts in (
        (PermissionType.ALLOW, args.allow_principal, args.allow_host),
        (PermissionType.DENY, args.deny_principal, args.deny_host),
    ):
        found |= dict.fromkeys(
            (principal.strip(), host.strip(), operation, permission)
            for principal in principals
            for operation in operations
            for host in hosts or [WILDCARD]
        )
    return sorted(found)


# Actions


async def _list(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    filters = [AclFilter(kind, name, pattern) for kind, name, pattern in args.patterns] or [AclFilter()]
    found: dict[AclBinding, None] = {}
    for one in filters:
        found |= dict.fromkeys(await admin.describe_acls(one))
    principals = list(dict.fromkeys(principal.strip() for principal in args.principal))
    bindings = [one for one in sorted(found) if not principals or one.principal in principals]
    lines = [] if principals else _listed(bindings)
    for principal in principals:
        lines.append(f"ACLs for principal `{principal}`\n")
        lines += _listed([one for one in bindings if one.principal == principal])
    out.show({"acls": [_document(one) for one in bindings]}, lines)


async def _add(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    added: list[AclBinding] = []
    existing: list[AclBinding] = []
    lines: list[str] = []
    for pattern, entries in args.wanted.items():
        known = set(await admin.describe_acls(AclFilter(*pattern)))
        bindings = [AclBinding(*pattern, *entry) for entry in entries]
        existing += [one for one in bindings if one in known]
        lines += [f"Acl {binding_text(one)} already exists.\n" for one in bindings if one in known]
        new = [one for one in bindings if one not in known]
        if new:
            checked(await admin.create_acls(new))
            lines.append(f"Adding ACLs for resource `{pattern_text(pattern)}`: \n {_rows(new)}\n\n")
            added += new
    out.show({"added": [_document(one) for one in added], "existing": [_document(one) for one in existing]}, lines)


async def _remove(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    removed: list[AclBinding] = []
    for pattern, entries in args.wanted.items():
        filters = [AclFilter(*pattern, *entry) for entry in entries] or [AclFilter(*pattern)]
        for gone in checked(await admin.delete_acls(filters)).values():
            removed += gone
    out.show({"removed": [_document(one) for one in dict.fromkeys(removed)]}, [])


def _confirm(args: argparse.Namespace, out: Out) -> None:
    """Prompts for each resource on stdout, with --json on stderr, and drops those for which the input is not "y"."""
    for pattern, entries in list(args.wanted.items()):
        which = "delete all ACLs for"
        if entries:
            which = f"remove ACLs: \n {_rows(AclBinding(*pattern, *entry) for entry in entries)}\n from"
        question = f"Are you sure you want to {which} resource filter `{pattern_text(pattern)}`? (y/n)"
        if out.as_json:
            out.note(question)
        else:
            out.write(question + "\n")
            sys.stdout.flush()
        if sys.stdin.readline().strip().lower() != "y":
            del args.wanted[pattern]


# Output


def pattern_text(pattern: Pattern) -> str:
    """Returns a resource pattern in the format of Kafka's tool."""
    kind, name, how = pattern
    return f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={how.name})"


def binding_text(one: AclBinding) -> str:
    """Returns an entry with its resource pattern in the format of Kafka's tool."""
    return f"(pattern={pattern_text(one[:3])}, entry={_entry_text(one)})"


def _entry_text(one: AclBinding) -> str:
    return (
        f"(principal={one.principal}, host={one.host}, operation={one.operation.name}, "
        f"permissionType={one.permission.name})"
    )


def _rows(bindings: Iterable[AclBinding]) -> str:
    return "\n".join(f"\t{_entry_text(one)}" for one in bindings)


def _listed(bindings: Sequence[AclBinding]) -> list[str]:
    lines: list[str] = []
    for pattern in dict.fromkeys(one[:3] for one in bindings):
        rows = _rows(one for one in bindings if one[:3] == pattern)
        lines.append(f"Current ACLs for resource `{pattern_text(pattern)}`: \n {rows}\n\n")
    return lines


def _document(one: AclBinding) -> dict[str, str]:
    return {field: value.name if isinstance(value, Enum) else value for field, value in one._asdict().items()}
