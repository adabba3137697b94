"""Command lines of all packages: argparse with errors of one line that name what was probably meant.

Owns the words of such a mistake. Knows nothing of Kafka; it stands here since every package may import this one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from .mistakes import complain
from .names import did_you_mean, meant

BOOTSTRAP = ("--bootstrap-server", "--bootstrap")
"""Where a broker is: each command that asks one takes both flags."""


def add_bootstrap(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Adds the flag that says where a broker is, by both of its names; it is `parsed.bootstrap_server`."""
    settings: dict[str, Any] = {"metavar": "HOST:PORT", **more}
    parser.add_argument(*BOOTSTRAP, **settings)


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line on stderr. Unknown flags and commands are named with the nearest.

    `meant` are flags that other programs have, with the one that does it here: `{"--port": "--listen HOST:PORT"}`.
    """

    def __init__(self, *args: Any, meant: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._meant = dict(meant or {})
        self._typed: list[str] = []

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's; what is left over ends the command."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            self.error(self._unknown(left[0]))
        return parsed

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's, which calls it for subcommands as well."""
        self._typed = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._typed, namespace)

    def error(self, message: str) -> NoReturn:
        """Ends the command with one line on stderr. A flag that does not exist is named first: where one is required
        it is often that one, typed wrong."""
        for word in self._unknown_flags():
            message = self._unknown(word)
            break
        raise SystemExit(complain(self.prog, message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        names = list(map(str, action.choices))
        listed = ", ".join(names)
        if _subcommands(action) is not None:
            hint = did_you_mean(str(value), names) or ";"
            raise argparse.ArgumentError(None, f"unknown command {value}{hint} one of: {listed}")
        raise argparse.ArgumentError(action, f"{value!r} is none of {listed}{did_you_mean(str(value), names)}")

    def _chain(self) -> Iterator[argparse.ArgumentParser]:
        """This parser and those of the subcommands that were typed."""
        yield self
        parser: argparse.ArgumentParser = self
        for word in self._typed:
            for action in parser._actions:
                subcommands = _subcommands(action) or {}
                if word in subcommands:
                    parser = subcommands[word]
                    yield parser
                    break

    def _flags(self) -> list[str]:
        return [flag for parser in self._chain() for flag in parser._option_string_actions]

    def _unknown_flags(self) -> Iterator[str]:
        flags = self._flags()
        for word in self._typed:
            if word == "--":
                return
            name = word.partition("=")[0]
            if name.startswith("--") and not any(flag.startswith(name) for flag in flags):
                yield word

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return f"unexpected argument {word}"
        if name in self._meant:
            return f"unknown flag {name}{meant([self._meant[name]])}"
        flags = [flag for flag in self._flags() if flag.startswith("--")]
        program = " ".join([self.prog, *(p.prog.rpartition(" ")[2] for p in list(self._chain())[1:])])
        return f"unknown flag {name}{did_you_mean(name, flags) or f'; {program} --help lists the flags'}"


def _subcommands(action: argparse.Action) -> Mapping[str, argparse.ArgumentParser] | None:
    """The parser of each subcommand that the action chooses among; None for an action that is a flag or an argument."""
    choices: Any = action.choices
    return choices if isinstance(action, argparse._SubParsersAction) else None  # pyright: ignore[reportPrivateUsage]
