"""`ottla ctl requests`: lists the requests of clients with their outcomes, and asserts on them for scripts."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...protocol.narrowing import is_list
from ...protocol.text import cell
from ..http_client import Client, Wrong
from .output import Columns, titled

TEXTS = ("api", "client-id", "software", "principal", "topic", "codec", "error", "ending")
NUMBERS = ("node", "since", "version", "min-version", "max-version", "magic")
COUNTS = ("count", "min-count", "max-count")
BYTES_OF_LINE = 16


def add_words(parser: argparse.ArgumentParser, *, counts: bool) -> None:
    """Adds the filters of requests; with `counts` also the expectations of `requests assert`."""
    for name in TEXTS:
        parser.add_argument(
            f"--{name}", metavar="PATTERN" if name in ("client-id", "software", "principal", "topic") else "NAME"
        )
    for name in (*NUMBERS, *(COUNTS if counts else ())):
        parser.add_argument(f"--{name}", type=int, metavar="N")
    parser.add_argument("--acks", type=int, choices=[-1, 0, 1])
    if counts:
        for name in ("idempotent", "transactional"):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
        parser.add_argument("--none", action="store_const", const=True, help="expect that no request matches")
        parser.add_argument(
            "--field", action="append", default=[], metavar="PATH=VALUE", help="expected value of a field; may repeat"
        )
        parser.add_argument(
            "--within",
            type=float,
            default=0.0,
            metavar="SECONDS",
            help="time to wait for missing requests (default: 0)",
        )


def _words(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    found = {name.replace("-", "_"): getattr(given, name.replace("-", "_"), None) for name in (*names, "acks")}
    return {name: value for name, value in found.items() if value is not None}


def listed(to: Client, given: argparse.Namespace) -> Any:
    """Requests the newest matching requests; returns them oldest first."""
    query = _words(given, *TEXTS, *NUMBERS, "limit") | {"order": "newest"}
    response = to.request("GET", "requests", query=query)
    response["requests"] = response["requests"][::-1]
    return response


def asserted(to: Client, given: argparse.Namespace) -> Any:
    """Requests the verdict on an expectation."""
    body = _words(given, *TEXTS, *NUMBERS, *COUNTS, "idempotent", "transactional", "none")
    if given.field:
        body["fields"] = dict(map(_field, given.field))
    return to.request("POST", "requests", "assert", body=body | {"within_ms": int(given.within * 1000)})


def _field(text: str) -> tuple[str, Any]:
    """Splits PATH=VALUE; the value is parsed as JSON if it is valid JSON. Raises Wrong."""
    path, separator, value = text.partition("=")
    if not separator:
        raise Wrong(f"{text!r} is not PATH=VALUE")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


# Output


def show_listed(response: Any) -> list[str]:
    """Returns a line for each request, and a note if there are older ones."""
    columns: Columns = {
        "NUMBER": "number",
        "REQUEST": lambda one: f"{one['api']} v{one['version']}",
        "CLIENT": "client_id",
        "PRINCIPAL": lambda one: one.get("principal", ""),  # a broker of an older version has none
        "SOFTWARE": "software",
        "TOPICS": lambda one: ",".join(one["topics"]),
        "MS": lambda one: None if one["duration_us"] is None else f"{one['duration_us'] / 1000:.1f}",
        "ENDING": "ending",
        "": lambda one: ",".join(one["errors"]) or one["reason"],
    }
    found = titled(response["requests"], columns, "no requests")
    return [*found, "older requests exist"] if response["more"] else found


def show_one(response: Any) -> list[str]:
    apart = ("request", "response", "request_hex", "response_hex", "produced")
    found = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in response.items() if name not in apart]
    for name in ("request", "response"):
        found += ["", f"{name}:", *_indented(response[name])]
        data = response[f"{name}_hex"]
        found += [] if data is None else _hex(bytes.fromhex(data))
    return found


def _text(value: Any) -> str:
    return ", ".join(map(cell, value)) if is_list(value) else cell(value)


def _indented(value: Any) -> list[str]:
    if value is None:
        return ["  none, or no longer kept"]
    return [f"  {cell(line)}" for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines()]


def _hex(data: bytes) -> list[str]:
    lines: list[str] = []
    for start in range(0, len(data), BYTES_OF_LINE):
        some = data[start : start + BYTES_OF_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"  {start:08x}  {some.hex(' '):<{3 * BYTES_OF_LINE - 1}}  {letters}")
    return lines


def show_verdict(response: Any) -> list[str]:
    if response["passed"]:
        return [f"as expected: {response['count']} request{'' if response['count'] == 1 else 's'}"]
    return [cell(line) for line in response["text"].splitlines()]
