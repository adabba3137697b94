"""The schemas of what an administrator does over HTTP: resets of offsets, configs, access control lists."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.acls import AclOperation, PatternType, PermissionType, ResourceType, words
from ...protocol.limits import INT32_MAX, INT64_MAX, INT64_MIN
from ..admin_api.acl_entries import ENTRIES_MAX
from ..config.definitions import ConfigType
from ..config.values import ConfigSource
from ..groups.resets import SCENARIOS
from .schema_parts import FLAG, TEXT, TEXT_OR_NULL, list_of, object_of, ref, text_of, whole
from .shapes import Schema

MAX_PLACES = 10_000  # partitions that one reset names
MAX_CONFIGS = 1000  # that one request changes
MAX_TEXT = 32_767
_COUNT = whole(0, INT64_MAX)
_SOURCES = sorted(f"{source.name}_CONFIG" for source in ConfigSource)
_VALUES: Schema = {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": MAX_CONFIGS}
DRY_RUN: Schema = {
    **FLAG,
    "default": False,
    "description": "true checks and returns what would be done, and changes nothing",
}

ACL_PARTS: Mapping[str, Schema] = {
    "resource_type": {"enum": words(ResourceType)},
    "resource_name": text_of(MAX_TEXT, "a resource's name, or *"),
    "pattern_type": {"enum": words(PatternType)},
    "principal": text_of(MAX_TEXT, "TYPE:NAME, such as User:alice"),
    "host": text_of(MAX_TEXT, "an address, or *"),
    "operation": {"enum": words(AclOperation)},
    "permission": {"enum": words(PermissionType)},
}
ACL_FILTER: Mapping[str, Schema] = {
    "resource_type": {"enum": words(ResourceType, in_filter=True)},
    "resource_name": ACL_PARTS["resource_name"],
    "pattern_type": {"enum": words(PatternType, in_filter=True)},
    "principal": ACL_PARTS["principal"],
    "host": ACL_PARTS["host"],
    "operation": {"enum": words(AclOperation, in_filter=True)},
    "permission": {"enum": words(PermissionType, in_filter=True)},
}

ADMINISTRATION: dict[str, Schema] = {
    "ResetPlace": object_of(
        {
            "topic": text_of(249, "a topic's name", 1),
            "partition": whole(0, INT32_MAX, "a partition; all of the topic without it"),
        },
        optional=("partition",),
    ),
    "Reset": object_of(
        {
            "to": {
                "enum": list(SCENARIOS),
                "description": "the log start offset, the log end offset, the committed offset (the log end offset "
                "where there is none), an offset, a distance from the committed offset, or the first record of a time",
            },
            "offset": whole(0, INT64_MAX, "of to: offset"),
            "shift_by": whole(INT64_MIN, INT64_MAX, "of to: shift, below 0 to go back"),
            "time_ms": whole(0, INT64_MAX, "of to: time, milliseconds since 1970"),
            "of": {
                **list_of("ResetPlace", MAX_PLACES),
                "description": "topics and partitions; without it all with a committed offset",
            },
            "dry_run": DRY_RUN,
        },
        optional=("offset", "shift_by", "time_ms", "of", "dry_run"),
        text="new committed offsets for a group without members, as kafka-consumer-groups --reset-offsets sets them",
    ),
    "ResetOffset": object_of(
        {
            "topic": TEXT,
            "partition": whole(0, INT32_MAX),
            "before": {"type": ["integer", "null"], "description": "the committed offset until now, null for none"},
            "after": _COUNT,
            "start_offset": {**_COUNT, "description": "the log start offset"},
            "end_offset": {**_COUNT, "description": "the high watermark"},
            "wanted": {
                "type": ["integer", "null"],
                "description": "what was asked for, where the log does not have it",
            },
        }
    ),
    "GroupReset": object_of(
        {"group": TEXT, "done": {**FLAG, "description": "false for a dry run"}, "offsets": list_of("ResetOffset")}
    ),
    "ConfigSynonym": object_of({"name": TEXT, "value": TEXT_OR_NULL, "source": {"enum": _SOURCES}}),
    "Config": object_of(
        {
            "name": TEXT,
            "value": {**TEXT_OR_NULL, "description": "null for a secret, and for no value"},
            "default": {**TEXT_OR_NULL, "description": "the release's default"},
            "source": {"enum": _SOURCES},
            "is_read_only": FLAG,
            "is_sensitive": FLAG,
            "type": {"enum": [one.name for one in ConfigType]},
            "documentation": {**TEXT_OR_NULL, "description": "null where Ottla does not act on it"},
            "synonyms": {
                **list_of("ConfigSynonym"),
                "description": "the places that give a value, the one in force first",
            },
        }
    ),
    "Configs": object_of({"configs": list_of("Config")}, text="configs by name, as DescribeConfigs returns them"),
    "ConfigChanges": object_of(
        {
            "set": {**_VALUES, "description": "new values"},
            "delete": {**list_of(TEXT, MAX_CONFIGS), "description": "names whose value is removed"},
            "append": {**_VALUES, "description": "elements to add to lists, joined by commas"},
            "subtract": {**_VALUES, "description": "elements to take out of lists, joined by commas"},
            "for_all": {
                **FLAG,
                "default": False,
                "description": "of the broker: change the default of all brokers, which a broker's own value overrules",
            },
            "dry_run": DRY_RUN,
        },
        optional=None,
        text="changes as IncrementalAlterConfigs makes them, all or none",
    ),
    "Acl": object_of(ACL_PARTS, optional=("host", "pattern_type", "permission")),
    "Acls": object_of({"acls": list_of("StoredAcl", ENTRIES_MAX)}),
    "StoredAcl": object_of(
        {name: TEXT for name in ACL_PARTS}, text="an access control entry; a number is a word that this release lacks"
    ),
    "NewAcls": object_of({"acls": {**list_of(ref("Acl"), MAX_CONFIGS), "minItems": 1}}),
}
