"""`ottla configs`: describes and alters configs, quotas and SCRAM credentials, with the flags of kafka-configs.

Owns the flags and the layout of that tool; users, clients and IPs are in `config_quotas.py`. `--json` prints
`{"configs": [{entity_type, entity_name, configs}]}`: of each config `name, value, source, sensitive, read_only`,
`synonyms` (`name, value, source`), and `documentation` if there is any; `entity_name` is null for the default. For
users, clients and IPs it is `{"quotas": [{entity, quotas}], "scram": [{user, credentials, error}]}`. After --alter it
is `{"altered": {entity_type, entity_name, set, deleted}}`; `set` has names only, since values may be secret.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...broker.config.sources import read_properties_file
from ...broker.errors import ConfigError
from ...client.admin.admin import (
    Admin,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
    checked,
)
from ...client.net.errors import UnsupportedVersion
from ...protocol.arguments import Parser
from . import config_quotas
from .admin_command import CannotDo, Out, admin_parser, parsed, run_admin
from .config_quotas import CLIENTS, IPS, USERS, Changes, Entity
from .groups import consumer_groups

PROGRAM = "ottla configs"
ACTIONS = {"describe": "print configs", "alter": "set or delete configs"}
TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = "topics", "brokers", "broker-loggers", "client-metrics", "groups"
KINDS = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
WITH_DEFAULT = (USERS, CLIENTS, BROKERS, IPS)
RESOURCES = {
    TOPICS: ResourceType.TOPIC,
    BROKERS: ResourceType.BROKER,
    LOGGERS: ResourceType.BROKER_LOGGER,
    METRICS: ResourceType.CLIENT_METRICS,
    GROUPS: ResourceType.GROUP,
}
# The source of a value set for an entity of each type; all values of loggers are shown.
DYNAMIC = {TOPICS: ConfigSource.DYNAMIC_TOPIC, METRICS: ConfigSource.CLIENT_METRICS, GROUPS: ConfigSource.GROUP}
OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
KEY = re.compile(r"[a-zA-Z0-9._-]*")


def configs(arguments: Sequence[str]) -> int:
    parser = admin_parser(PROGRAM, "Describe and alter configs, quotas and SCRAM credentials.", ACTIONS)
    parser.add_argument("--all", action="store_true", help="with --describe: also values that were not set")
    parser.add_argument("--entity-type", action="append", default=[], metavar="TYPE", help=", ".join(KINDS))
    parser.add_argument("--entity-name", action="append", dest="names", default=[], metavar="NAME")
    parser.add_argument(
        "--entity-default", action="append_const", dest="names", const="", help="the default entity, in place of a name"
    )
    for kind in KINDS:
        flag, long = kind if kind == METRICS else kind[:-1], f"--entity-type {kind}"
        parser.add_argument(f"--{flag}", dest=f"of_{kind}", metavar="NAME", help=f"{long} --entity-name NAME")
        if kind in WITH_DEFAULT:
            parser.add_argument(f"--{flag}-defaults", action="store_true", help=f"{long} --entity-default")
    parser.add_argument(
        "--add-config", metavar="K=V,...", help="configs to set; a value with commas in square brackets: k=[v1,v2]"
    )
    parser.add_argument("--add-config-file", type=Path, metavar="FILE", help="configs to set, from a properties file")
    parser.add_argument("--delete-config", metavar="K,...", help="configs to delete")
    parser.add_argument("--force", action="store_true", help=argparse.SUPPRESS)  # a flag of Kafka's tool without effect
    args = parsed(parser, arguments, ACTIONS, _check)
    return run_admin(PROGRAM, args, _alter if args.alter else _describe)


def _check(parser: Parser, args: argparse.Namespace) -> None:
    short = {kind: getattr(args, f"of_{kind}") for kind in KINDS}
    defaults = [kind for kind in WITH_DEFAULT if getattr(args, f"{kind[:-1]}_defaults")]
    kinds = [*args.entity_type, *(kind for kind, name in short.items() if name is not None), *defaults]
    names = [*args.names, *(name for name in short.values() if name is not None), *("" for _ in defaults)]
    if len(set(kinds)) != len(kinds):
        twice = ",".join(dict.fromkeys(kind for kind in kinds if kinds.count(kind) > 1))
        parser.error(f"Duplicate entity type(s) specified: {twice}")
    wrong = next((kind for kind in kinds if kind not in KINDS), None)
    if wrong is not None:
        parser.error(f"Invalid entity type {wrong}, the entity type must be one of {', '.join(KINDS)}")
    if not kinds:
        parser.error("At least one entity type must be specified")
    if len(kinds) > 1 and set(kinds) != {USERS, CLIENTS}:
        parser.error("Only 'users' and 'clients' entity types may be specified together")
    if (args.entity_type or args.names) and len(kinds) > len(args.entity_type):
        parser.error("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if len(names) > len(kinds):
        parser.error("More entity names specified than entity types")
    args.kinds, args.names = kinds, names
    _check_names(parser, kinds, names)
    (_check_alter if args.alter else _check_describe)(parser, args)


def _check_names(parser: Parser, kinds: Sequence[str], names: Sequence[str]) -> None:
    for kind, name in zip(kinds, names, strict=False):
        if kind in (BROKERS, LOGGERS) and name and not re.fullmatch(r"-?[0-9]{1,10}", name):
            parser.error(f"The entity name for {kind} must be a valid integer broker id, but it is: {name}")
        if kind == IPS and name and not _is_host(name):
            parser.error(f"The entity name for {kind} must be a valid IP or resolvable host, but it is: {name}")


def _is_host(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(re.fullmatch(r"[A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*", name))
    return True


def _check_describe(parser: Parser, args: argparse.Namespace) -> None:
    if args.add_config is not None or args.add_config_file is not None or args.delete_config is not None:
        parser.error("--add-config, --add-config-file and --delete-config need --alter")
    kind = args.kinds[0]
    if kind not in WITH_DEFAULT and "" in args.names:
        parser.error(f"--entity-default must not be specified with --describe of {','.join(args.kinds)}")
    if kind == LOGGERS and not args.names:
        parser.error(f"An entity name must be specified with --describe of {kind}")


def _check_alter(parser: Parser, args: argparse.Namespace) -> None:
    if args.all:
        parser.error("--all needs --describe")
    if len(args.names) != len(args.kinds):
        parser.error("An entity name must be specified for every entity type")
    if "" in args.names and args.kinds[0] not in WITH_DEFAULT:
        parser.error(f"An entity name must be specified with --alter of {','.join(args.kinds)}")
    if args.add_config is not None and args.add_config_file is not None:
        parser.error("Only one of --add-config or --add-config-file must be specified")
    if args.add_config is None and args.add_config_file is None and args.delete_config is None:
        parser.error("--alter needs --add-config, --add-config-file or --delete-config")
    try:
        added = read_properties_file(args.add_config_file) if args.add_config_file else added_of(args.add_config)
    except (CannotDo, ConfigError) as error:
        parser.error(str(error))
    wrong = next((key for key in added if not KEY.fullmatch(key)), None)
    if wrong is not None:
        parser.error(f"Invalid character found for config key: {wrong}")
    deleted = [key.strip() for key in (args.delete_config or "").split(",") if key.strip()]
    args.changes = {**dict.fromkeys(deleted), **added}
    args.entity = dict(zip(args.kinds, (name or None for name in args.names), strict=True))
    if args.kinds[0] in (USERS, CLIENTS, IPS):
        try:
            args.scram = config_quotas.check_changes(args.entity, args.changes)
        except CannotDo as error:
            parser.error(str(error))


def added_of(text: str | None) -> dict[str, str]:
    """Parses `k1=v1,k2=[v2,v3]`. Raises CannotDo."""
    found: dict[str, str] = {}
    for pair in re.split("," + OUTSIDE_BRACKETS, text) if text is not None else ():
        parts = re.split(r"\s*=\s*" + OUTSIDE_BRACKETS, pair)
        if len(parts) != 2:
            raise CannotDo(
                'Invalid entity config: all configs to be added must be in the format "key=val" or '
                '"key=[val1,val2]" to group values which contain commas.'
            )
        found[parts[0].strip()] = re.sub(r"[\[\]]", "", parts[1]).strip()
    return found


# Alter


async def _alter(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    kind, name = args.kinds[0], args.names[0]
    changes: Changes = args.changes
    if kind in (USERS, CLIENTS, IPS):
        await config_quotas.alter(admin, args.entity, changes, args.scram)
    else:
        if kind == LOGGERS:
            known = await _entries(admin, kind, name)
            unknown = [key for key in changes if key not in known]
            if unknown:
                raise CannotDo(f"Invalid broker logger(s): {','.join(unknown)}")
        checked(await admin.alter_configs({ConfigResource(RESOURCES[kind], name): changes}))
    document = {
        "entity_type": kind,
        "entity_name": name or None,
        "set": [key for key, value in changes.items() if value is not None],
        "deleted": [key for key, value in changes.items() if value is None],
    }
    what = f"config for {kind[:-1]} {name}" if name else f"default config for {kind} in the cluster"
    out.show({"altered": document}, [f"Completed updating {what}.\n"])


# Describe


async def _describe(admin: Admin, args: argparse.Namespace, out: Out) -> None:
    kind = args.kinds[0]
    if kind in (USERS, CLIENTS, IPS):
        names: list[str | None] = [name or None for name in args.names]
        entity: Entity = dict(zip(args.kinds, names, strict=False))
        await config_quotas.describe(admin, args.kinds, entity, out)
        return
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for name in args.names or await _names(admin, kind):
        if name and args.names and name not in await _names(admin, kind):
            lines.append(f"The {kind[:-1]} '{name}' doesn't exist and doesn't have dynamic config.\n")
            continue
        entries = await _entries(admin, kind, name)
        source = DYNAMIC.get(kind)
        if kind == BROKERS:
            source = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        some = [e for _, e in sorted(entries.items()) if args.all or source is None or e.source == source]
        head = f"{'All' if args.all else 'Dynamic'} configs for {kind[:-1]} {name} are:"
        lines.append((head if name else f"Default configs for {kind} in the cluster are:") + "\n")
        lines += [_line(entry) for entry in some]
        described = [_entry(entry) for entry in some]
        documents.append({"entity_type": kind, "entity_name": name or None, "configs": described})
    out.show({"configs": documents}, lines)


async def _names(admin: Admin, kind: str) -> list[str]:
    """Returns the names of all entities of a type; for brokers also the default."""
    if kind == TOPICS:
        return list(await admin.list_topics(include_internal=True))
    if kind in (BROKERS, LOGGERS):
        return [*(str(node.node_id) for node in (await admin.describe_cluster()).nodes), ""]
    try:
        listed = [one.name for one in await admin.list_config_resources([RESOURCES[kind]])]
    except UnsupportedVersion:
        if kind != GROUPS:
            raise
        listed = []
    return sorted({*listed, *(one.group for one in await consumer_groups(admin))}) if kind == GROUPS else listed


async def _entries(admin: Admin, kind: str, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(RESOURCES[kind], name)
    found = await admin.describe_configs([resource], include_synonyms=True, include_documentation=True)
    return checked(found)[resource]


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{s.source.text}:{s.name}={_value(s.value)}" for s in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"  {entry.name}={_value(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}\n"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def _entry(entry: ConfigEntry) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.text,
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
        "synonyms": [{"name": s.name, "value": s.value, "source": s.source.text} for s in entry.synonyms],
    }
    return document | ({"documentation": entry.documentation} if entry.documentation else {})
