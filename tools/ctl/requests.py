"""`ottla ctl requests`: what clients asked, how it ended, and whether that is as a script expects it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ...protocol.narrowing import is_list
from ...protocol.text import cell
from ..http_client import Client, Wrong
from .output import titled

TEXTS = ("api", "client-id", "software", "topic", "codec", "error", "ending")
NUMBERS = ("node", "since", "version", "min-version", "max-version", "magic")
COUNTS = ("count", "min-count", "max-count")
BYTES_OF_LINE = 16


def add_words(parser: argparse.ArgumentParser, *, counts: bool) -> None:
    """Adds what says which requests, how they are, and where they are counted how many."""
    for name in TEXTS:
        parser.add_argument(f"--{name}", metavar="PATTERN" if name in ("client-id", "software", "topic") else "NAME")
    for name in (*NUMBERS, *(COUNTS if counts else ())):
        parser.add_argument(f"--{name}", type=int, metavar="N")
    parser.add_argument("--acks", type=int, choices=[-1, 0, 1])
    if counts:
        for name in ("idempotent", "transactional"):
            parser.add_argument(f"--{name}", action=argparse.BooleanOptionalAction)
        parser.add_argument("--none", action="store_const", const=True, help="no request may be as all this says")
        parser.add_argument("--field", action="append", default=[], metavar="PATH=VALUE", help="may repeat")
        parser.add_argument("--within", type=float, default=0.0, metavar="SECONDS", help="for what is missing to come")


def _words(given: argparse.Namespace, *names: str) -> dict[str, Any]:
    found = {name.replace("-", "_"): getattr(given, name.replace("-", "_"), None) for name in (*names, "acks")}
    return {name: value for name, value in found.items() if value is not None}


def listed(to: Client, given: argparse.Namespace) -> Any:
    """The newest that fit, oldest first."""
    query = _words(given, *TEXTS, *NUMBERS, "limit") | {"order": "newest"}
    told = to.ask("GET", "requests", query=query)
    told["requests"] = told["requests"][::-1]
    return told


def one(to: Client, given: argparse.Namespace) -> Any:
    """One of them."""
    return to.ask("GET", "requests", given.number)


def cleared(to: Client, given: argparse.Namespace) -> Any:
    """Forgets all."""
    return to.ask("DELETE", "requests")


def asserted(to: Client, given: argparse.Namespace) -> Any:
    """A verdict."""
    body = _words(given, *TEXTS, *NUMBERS, *COUNTS, "idempotent", "transactional", "none")
    if given.field:
        body["fields"] = dict(map(_field, given.field))
    return to.ask("POST", "requests", "assert", body=body | {"within_ms": int(given.within * 1000)})


def _field(text: str) -> tuple[str, Any]:
    """A path and a value: JSON where it is some, else the text."""
    path, separator, value = text.partition("=")
    if not separator:
        raise Wrong(f"{text!r} is not PATH=VALUE")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def failed(told: Any) -> bool:
    """Whether a verdict is that something is otherwise."""
    return not told["passed"]


# What is printed


def show_listed(told: Any) -> list[str]:
    """A line each."""
    rows = [
        (
            one["number"],
            f"{one['api']} v{one['version']}",
            one["client_id"],
            one["software"],
            ",".join(one["topics"]),
            _milliseconds(one["duration_us"]),
            one["ending"],
            ",".join(one["errors"]) or one["reason"],
        )
        for one in told["requests"]
    ]
    found = titled(("NUMBER", "REQUEST", "CLIENT", "SOFTWARE", "TOPICS", "MS", "ENDING", ""), rows, "no requests")
    return [*found, "there are older ones"] if told["more"] else found


def _milliseconds(duration_us: int | None) -> str:
    return "-" if duration_us is None else f"{duration_us / 1000:.1f}"


def show_one(told: Any) -> list[str]:
    """A request: what is known of it, its fields and its bytes."""
    apart = ("request", "response", "request_hex", "response_hex", "produced")
    found = [f"{name.replace('_', ' ')}: {_text(value)}" for name, value in told.items() if name not in apart]
    for name in ("request", "response"):
        found += ["", f"{name}:", *_indented(told[name])]
        data = told[f"{name}_hex"]
        found += [] if data is None else _hex(bytes.fromhex(data))
    return found


def _text(value: Any) -> str:
    return ", ".join(map(cell, value)) if is_list(value) else cell(value)


def _indented(value: Any) -> list[str]:
    if value is None:
        return ["  none, or not kept"]
    return [f"  {cell(line)}" for line in json.dumps(value, indent=2, ensure_ascii=False).splitlines()]


def _hex(data: bytes) -> list[str]:
    lines: list[str] = []
    for start in range(0, len(data), BYTES_OF_LINE):
        some = data[start : start + BYTES_OF_LINE]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"  {start:08x}  {some.hex(' '):<{3 * BYTES_OF_LINE - 1}}  {letters}")
    return lines


def show_verdict(told: Any) -> list[str]:
    """What is otherwise, or how many were looked at."""
    if told["passed"]:
        return [f"as expected: {told['count']} request{'' if told['count'] == 1 else 's'}"]
    return [cell(line) for line in told["text"].splitlines()]
