"""Resets of committed offsets, configs and access control lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from ....protocol.acls import CODES, words
from ....protocol.config_codes import ConfigSource, ConfigType
from ....protocol.limits import INT64_MAX, INT64_MIN
from ...admin_api.administration import ACLS_MAX
from ...groups.resets import SCENARIOS
from .parts import CONFIGS_MAX, ID_MAX, Count, Model, PartitionIndex, TopicName, doc, items, text, whole

PLACES_MAX = 10_000  # partitions that one reset names
DryRun = Annotated[bool, doc("true checks and returns the result without a change")]
Values = Annotated[dict[str, str], items(CONFIGS_MAX)]
ResourceName = Annotated[str, text(ID_MAX, "a resource's name, or *")]
Principal = Annotated[str, text(ID_MAX, "TYPE:NAME, such as User:alice")]
Host = Annotated[str, text(ID_MAX, "an address, or *")]

if TYPE_CHECKING:
    Scenario: TypeAlias = str
    SourceName: TypeAlias = str
    TypeName: TypeAlias = str
    Resource: TypeAlias = str
    Pattern: TypeAlias = str
    Operation: TypeAlias = str
    Permission: TypeAlias = str
    AnyResource: TypeAlias = str
    AnyPattern: TypeAlias = str
    AnyOperation: TypeAlias = str
    AnyPermission: TypeAlias = str
else:
    Scenario = Literal[tuple(SCENARIOS)]
    SourceName = Literal[tuple(sorted(source.text for source in ConfigSource))]
    TypeName = Literal[tuple(one.name for one in ConfigType)]
    Resource, Pattern, Operation, Permission = (Literal[tuple(words(of))] for of in CODES.values())
    AnyResource, AnyPattern, AnyOperation, AnyPermission = (
        Literal[tuple(words(of, in_filter=True))] for of in CODES.values()
    )


class ResetPlace(Model):
    topic: TopicName
    partition: Annotated[PartitionIndex, doc("a partition; all of the topic without it")] | UnsetType = UNSET


class Reset(Model):
    """New committed offsets for a group without members, as kafka-consumer-groups --reset-offsets sets them."""

    to: Annotated[
        Scenario,
        doc(
            "the log start offset, the log end offset, the committed offset (the log end offset without one), an "
            "offset, a distance from the committed offset, or the first record at or after a time"
        ),
    ]
    offset: Annotated[int, whole(0, INT64_MAX, "of to: offset")] | UnsetType = UNSET
    shift_by: Annotated[int, whole(INT64_MIN, INT64_MAX, "of to: shift, below 0 to go back")] | UnsetType = UNSET
    time_ms: Annotated[int, whole(0, INT64_MAX, "of to: time, milliseconds since 1970")] | UnsetType = UNSET
    of: (
        Annotated[
            list[ResetPlace],
            items(PLACES_MAX, description="topics and partitions; without it all with a committed offset"),
        ]
        | UnsetType
    ) = UNSET
    dry_run: DryRun = False


class ResetOffset(Model):
    topic: str
    partition: PartitionIndex
    before: Annotated[int | None, doc("the committed offset until now, null for none")]
    after: Count
    start_offset: Annotated[Count, doc("the log start offset")]
    end_offset: Annotated[Count, doc("the high watermark")]
    wanted: Annotated[int | None, doc("the offset of the request, if the log does not have it")]


class GroupReset(Model):
    group: str
    done: Annotated[bool, doc("false for a dry run")]
    offsets: list[ResetOffset]


class ConfigSynonym(Model):
    name: str
    value: str | None
    source: SourceName


class Config(Model):
    name: str
    value: Annotated[str | None, doc("null for a secret, and for no value")]
    default: Annotated[str | None, doc("the release's default")]
    source: SourceName
    is_read_only: bool
    is_sensitive: bool
    type: TypeName
    documentation: Annotated[str | None, doc("null for a config that Ottla does not act on")]
    synonyms: Annotated[list[ConfigSynonym], doc("the places that give a value, the one in force first")]


class Configs(Model):
    """Configs by name, as DescribeConfigs returns them."""

    configs: list[Config]


class ConfigChanges(Model):
    """Changes as IncrementalAlterConfigs makes them, all or none."""

    set: Annotated[Values, doc("new values")] | UnsetType = UNSET
    delete: Annotated[list[str], items(CONFIGS_MAX, description="names whose value is removed")] | UnsetType = UNSET
    append: Annotated[Values, doc("elements to add to lists, joined by commas")] | UnsetType = UNSET
    subtract: Annotated[Values, doc("elements to take out of lists, joined by commas")] | UnsetType = UNSET
    for_all: (
        Annotated[
            bool,
            doc(
                "of the broker: change the default of all brokers, which a broker's own value overrules", default=False
            ),
        ]
        | UnsetType
    ) = UNSET
    dry_run: DryRun = False


class Acl(Model):
    resource_type: Resource
    resource_name: ResourceName
    principal: Principal
    operation: Operation
    pattern_type: Pattern = "LITERAL"
    host: Host | UnsetType = UNSET
    permission: Permission = "ALLOW"


class NewAcls(Model):
    acls: Annotated[list[Acl], items(CONFIGS_MAX, 1)]


class AclFilter(Model):
    resource_type: AnyResource | UnsetType = UNSET
    resource_name: ResourceName | UnsetType = UNSET
    pattern_type: AnyPattern | UnsetType = UNSET
    principal: Principal | UnsetType = UNSET
    host: Host | UnsetType = UNSET
    operation: AnyOperation | UnsetType = UNSET
    permission: AnyPermission | UnsetType = UNSET


class StoredAcl(Model):
    """An access control entry; a number stands for a word that this release lacks."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class Acls(Model):
    acls: Annotated[list[StoredAcl], items(ACLS_MAX)]
