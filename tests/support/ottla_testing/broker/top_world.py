"""Overviews in the form of a control plane's responses, made by tests, and valid by its document."""

from __future__ import annotations

import copy
import functools
from typing import Any

import jsonschema

from ottla.broker.admin_api.overview import TOTALS
from ottla.broker.control.models import overview as models
from ottla.broker.control.openapi import document
from ottla.broker.control.routes import ROUTES

HOSTILE = "[bold red]x[/]\x1b[31m\x07\n\t\u202e[@click=app.quit]q[/]漢字\udcff"
SHOWN_HOSTILE = "[bold red]x[/]\\x1b[31m\\x07\\n\\t\\u202e[@click=app.quit]q[/]漢字\\udcff"


@functools.cache
def validator() -> Any:
    """Returns the validator of an overview, by the control plane's document."""
    schema = {"$ref": "#/components/schemas/Overview", "components": document(ROUTES)["components"]}
    return jsonschema.Draft202012Validator(schema)


def topic(name: str, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.OverviewTopic.__struct_fields__, 0) | {
        "name": name,
        "is_internal": False,
        "partitions": 1,
    }
    return result | more


def group(id: str, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.OverviewGroup.__struct_fields__, 0)
    result |= {"id": id, "type": "classic", "state": "Stable", "protocol_type": "consumer", "protocol": "range"}
    result |= {"topics": ["orders"]}
    return result | more


def producer(id: int, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.OverviewProducer.__struct_fields__, -1)
    result |= {
        "producer_id": id,
        "topic": "orders",
        "transactional_id": None,
        "transaction_state": None,
        "partition": 0,
    }
    return result | more


def client(id: str | None, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.OverviewClient.__struct_fields__, 0)
    result |= {"client_id": id, "software_name": "java", "software_version": "3", "listener": "PLAINTEXT"}
    return result | {"hosts": ["10.0.0.1"], "principals": ["User:ann"], "apis": {"Produce": 9}} | more


def slow(number: int, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.SlowRequest.__struct_fields__, 0)
    result |= {"number": number, "api": "Produce", "client_id": "app", "host": "10.0.0.1", "fault": None}
    return result | {"ending": "responded"} | more


def waiting(number: int, **more: Any) -> dict[str, Any]:
    result = dict.fromkeys(models.WaitingRequest.__struct_fields__, 0)
    result |= {"number": number, "api": "Fetch", "client_id": "app", "host": "10.0.0.1", "fault": None}
    return result | {"waits_for": "records"} | more


def overview(uptime_ms: int = 1000, **lists: Any) -> dict[str, Any]:
    """Returns a response; `lists` by name, and `totals` and `broker` if they differ from the usual."""
    result: dict[str, Any] = {
        "broker": {
            "status": "serving",
            "reason": None,
            "version": "0.1.0",
            "release": "4.3",
            "cluster_id": "c",
            "bootstrap": "127.0.0.1:9092",
            "instance": "i",
            "state": 1,
            "uptime_ms": uptime_ms,
        },
        "clock": {"now_ms": 1_700_000_000_000, "is_frozen": False, "offset_ms": 0},
        "nodes": [{"id": 1, "host": "127.0.0.1", "port": 9092, "running": True, "leads": 1}],
        "totals": dict.fromkeys(TOTALS, 0),
    }
    result |= {name: [] for name in ("topics", "groups", "producers", "clients", "slow", "waiting", "faults")}
    for name, value in lists.items():
        result[name] = result[name] | value if isinstance(value, dict) else value
    result = copy.deepcopy(result)
    if not any("\udcff" in str(value) for value in result.values()):
        validator().validate(result)
    return result
