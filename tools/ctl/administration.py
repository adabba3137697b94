"""`ottla ctl groups reset`, `configs`, `acls`, `log-levels` and `recording`: requests to the control plane, and their
output."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ...broker.logs import split_level
from ...protocol.acls import CODES, words
from ...protocol.text import cell, moment, places, table
from ..http_client import Client, Wrong
from .output import Columns, listed, titled

DEFAULT = "DEFAULT_CONFIG"
WORDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")


def reset(given: argparse.Namespace) -> Any:
    """Returns the body of `groups reset`. Raises Wrong."""
    body: dict[str, Any] = {"to": given.to, "dry_run": given.dry_run}
    if given.to_offset is not None:
        body |= {"to": "offset", "offset": given.to_offset}
    elif given.shift_by is not None:
        body |= {"to": "shift", "shift_by": given.shift_by}
    elif given.to_time is not None:
        body |= {"to": "time", "time_ms": given.to_time}
    if given.topic is not None:
        try:
            body["of"] = [place for text in given.topic for place in places(text)]
        except ValueError as error:
            raise Wrong(error) from error
    return body


def show_reset(response: Any) -> list[str]:
    columns: Columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "BEFORE": "before",
        "AFTER": "after",
        "START": "start_offset",
        "END": "end_offset",
        "": lambda one: "" if one["wanted"] is None else f"offset {one['wanted']} is out of range",
    }
    found = titled(response["offsets"], columns, "no partitions")
    return found if response["done"] else [*found, "nothing was changed (--dry-run)"]


def configs(to: Client, given: argparse.Namespace) -> Any:
    """Requests the configs of the broker or of a topic."""
    return _chosen(to.request("GET", *_path(given)), given)


def change(to: Client, given: argparse.Namespace) -> Any:
    """Sets, deletes, appends to or subtracts from configs. Raises Wrong if the arguments name none."""
    body = {
        "set": dict(given.value),
        "delete": given.delete,
        "append": dict(given.append),
        "subtract": dict(given.subtract),
        "dry_run": given.dry_run,
    }
    if not any(body[name] for name in ("set", "delete", "append", "subtract")):
        raise Wrong("no config given: expected NAME=VALUE, --delete, --append or --subtract")
    if given.for_all:
        body["for_all"] = True
    return _chosen(to.request("PATCH", *_path(given), body=body), given)


def _path(given: argparse.Namespace) -> tuple[str, ...]:
    return ("broker", "configs") if given.topic is None else ("topics", given.topic, "configs")


def _chosen(response: Any, given: argparse.Namespace) -> Any:
    """Returns the configs that are not defaults; with --all or --json, all."""
    if given.all or given.json:
        return response
    return {"configs": [one for one in response["configs"] if one["source"] != DEFAULT]}


shown = listed(
    "configs",
    {
        "CONFIG": "name",
        "VALUE": lambda one: "(secret)" if one["is_sensitive"] else one["value"],
        "DEFAULT": "default",
        "SOURCE": "source",
        "": lambda one: "read-only" if one["is_read_only"] else "",
    },
    "all configs have their defaults",
)


def add_acl_words(parser: argparse.ArgumentParser, *, is_filter: bool) -> None:
    """Adds the arguments of an entry, all optional for a filter."""
    for word in WORDS:
        choices = words(CODES[word], in_filter=is_filter) if word in CODES else None
        required = not is_filter and word in ("resource_type", "resource_name", "principal", "operation")
        parser.add_argument(
            f"--{word.replace('_', '-')}",
            required=required,
            type=str.upper if choices else str,
            metavar=word.upper().rpartition("_")[2],
            help=", ".join(choices) if choices else None,
        )


def acl_words(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the given words of an entry or filter."""
    return {word: getattr(given, word) for word in WORDS if getattr(given, word) is not None}


def filter_words(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the words of a filter. Raises Wrong without one, which would match all entries."""
    if found := acl_words(given):
        return found
    raise Wrong("no filter given: expected at least one, such as --principal User:alice")


show_acls = listed("acls", {word.upper().replace("_", " "): word for word in WORDS}, "no entries")


def show_levels(response: Any) -> list[str]:
    """Returns a line for each logger, root first."""
    return titled(response["levels"].items(), {"LOGGER": itemgetter(0), "LEVEL": itemgetter(1)}, "no loggers")


def set_levels(to: Client, given: argparse.Namespace) -> Any:
    """Sets the level of each given logger, and returns the levels of all loggers."""
    return _each_level(to, given.level, lambda text: dict(zip(("logger", "level"), split_level(text), strict=True)))


def reset_levels(to: Client, given: argparse.Namespace) -> Any:
    """Removes the own level of each given logger, which then has the inherited level."""
    return _each_level(to, given.logger, lambda name: {"logger": name, "level": None})


def _each_level(to: Client, texts: Sequence[str], body_of: Callable[[str], Any]) -> Any:
    try:
        bodies = [body_of(text) for text in texts]
    except ValueError as error:
        raise Wrong(error) from error
    response: Any = None
    for body in bodies:
        response = to.request("PUT", "log-levels", body=body)
    return response


def show_recording(response: Any) -> list[str]:
    if response["file"] is None:
        return ["no recording"]
    rows = [
        ("recording", "running" if response["running"] else f"ended: {cell(response['ended'])}"),
        ("file", cell(response["file"])),
        ("since", moment(response["since_ms"])),
        ("requests", cell(response["exchanges"])),
        ("dropped", cell(response["dropped"])),
        ("waiting", f"{response['waiting_bytes']} bytes"),
        (
            "size",
            f"{response['size_bytes']} of {response['max_bytes']} bytes{', the newest' if response['ring'] else ''}",
        ),
        ("contents", "yes" if response["contents"] else "omitted"),
    ]
    return table(rows)


def recording(given: argparse.Namespace) -> dict[str, Any]:
    body = {"file": os.path.abspath(given.file), "ring": given.ring, "contents": not given.without_contents}
    return body if given.max_bytes is None else body | {"max_bytes": given.max_bytes}
