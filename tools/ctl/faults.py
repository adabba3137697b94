"""The arguments of `ottla ctl faults add`, and the fault rule made from them."""

from __future__ import annotations

import argparse
from typing import Any

from ...protocol.text import duration_ms
from ..http_client import Wrong

# The positional arguments of each kind of fault, in order; optional ones in brackets.
WORDS: dict[str, tuple[str, ...]] = {
    "error": ("api", "code"),
    "delay": ("api", "ms", "[when]"),
    "disconnect": ("api", "[when]"),
    "truncate": ("api", "bytes"),
    "garble": ("api",),
    "wrong-crc": (),
    "throttle": ("api", "ms"),
    "stall": ("api",),
    "refuse": (),
    "bad-certificate": ("certificate",),
    "disk-error": ("[on]",),
    "disk-full": (),
}
TEXTS = ("topic", "client_id", "listener", "path")
NUMBERS = ("partition", "node", "nth", "times", "after", "seed")
ANY_API = "any"


def add_fault_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of a fault rule: its kind, the parameters of the kind, and its scope."""
    kinds = [" ".join((kind, *map(str.upper, words))) for kind, words in WORDS.items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(
        [
            "kinds of faults:",
            *(f"  {kind}" for kind in kinds),
            "",
            f"API is the name or key of an API, several separated by commas, or {ANY_API}; MS is a duration such as",
            "500ms or 2s; WHEN is before (the default) or after; ON is read, write or both; CERTIFICATE is expired,",
            "wrong_host or untrusted.",
        ]
    )
    parser.add_argument("kind", choices=list(WORDS), metavar="KIND")
    parser.add_argument("words", nargs="*", metavar="...", help="parameters of the kind, see below")
    for name in TEXTS:
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="PATTERN" if name != "listener" else "NAME")
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=_number, metavar="N")
    parser.add_argument("--probability", type=float, metavar="P", help="above 0, at most 1")


def rule_of(given: argparse.Namespace) -> dict[str, Any]:
    """Returns the rule as the JSON of the control plane. Raises Wrong."""
    takes = WORDS[given.kind]
    needed = [word for word in takes if not word.startswith("[")]
    if not len(needed) <= len(given.words) <= len(takes):
        raise Wrong(f"faults add {given.kind}: expected {' '.join((given.kind, *map(str.upper, takes)))}")
    rule: dict[str, Any] = {"action": given.kind.replace("-", "_")}
    for word, text in zip(takes, given.words, strict=False):
        rule |= _read(word.strip("[]"), text)
    for name in (*TEXTS, *NUMBERS, "probability"):
        value = getattr(given, name)
        if value is not None:
            rule[name] = value
    return rule


def _read(word: str, text: str) -> dict[str, Any]:
    try:
        if word == "api":
            names = [_number_or_name(name) for name in text.split(",")]
            return {} if text == ANY_API else {"api": names[0] if len(names) == 1 else names}
        if word == "ms":
            return {"ms": duration_ms(text)}
        if word == "bytes":
            return {"bytes": int(text)}
        if word == "code":
            return {"code": _number_or_name(text)}
    except ValueError as error:
        raise Wrong(error if word == "ms" else f"{text!r} is not a whole number") from error
    return {word: text}


def _number_or_name(text: str) -> int | str:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else text


def _number(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
