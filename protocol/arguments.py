"""Command lines of all packages: argparse with one-line errors that suggest the nearest flag or command.

Independent of Kafka; it is in this package because every other package may import this one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from .mistakes import complain
from .names import did_you_mean, meant

BOOTSTRAP = ("--bootstrap-server", "--bootstrap")
"""The flags for the broker's address, accepted by each command that connects to one."""


def add_bootstrap(parser: argparse.ArgumentParser, **more: Any) -> None:
    """Adds the flag for the broker's address under both names; its value is `parsed.bootstrap_server`."""
    settings: dict[str, Any] = {"metavar": "HOST:PORT", **more}
    parser.add_argument(*BOOTSTRAP, **settings)


COMMAND_CONFIG = "a properties file with the login and TLS by Kafka's names: security.protocol, sasl.*, ssl.*"


def add_command_config(parser: argparse.ArgumentParser, flag: str = "--command-config", help: str = "") -> None:
    """Adds the flag for the file with a client's security options, which goes with `add_bootstrap`."""
    parser.add_argument(flag, metavar="FILE", help=help or COMMAND_CONFIG)


_NARROW: Any = partial(argparse.HelpFormatter, width=80)


class Parser(argparse.ArgumentParser):
    """An argparse parser with errors of one line on stderr, which suggest the nearest flag or command.

    `meant` maps flags of other programs to the equivalent here: `{"--port": "--listen HOST:PORT"}`. With `complete` the
    process completes a command line for a shell: it is called with the parser instead of parsing, and exits.
    """

    complete: Callable[[argparse.ArgumentParser], object] | None = None

    def __init__(self, *args: Any, meant: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._meant = dict(meant or {})
        self._typed: list[str] = []

    def add_argument(self, *args: Any, **kwargs: Any) -> argparse.Action:
        """Adds an argument. argparse tries to format it, for which it would read the width of the terminal with shutil:
        3 ms of the start of a command, with bz2 and lzma.
        """
        chosen, self.formatter_class = self.formatter_class, _NARROW
        try:
            return super().add_argument(*args, **kwargs)
        finally:
            self.formatter_class = chosen

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parses like argparse, except that unrecognised arguments exit with a suggestion."""
        if Parser.complete is not None:
            Parser.complete(self)
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            self.error(self._unknown(left[0]))
        return parsed

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parses like argparse, which also calls this method for subcommands."""
        self._typed = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._typed, namespace)

    def error(self, message: str) -> NoReturn:
        """Exits with one line on stderr. An unknown flag is reported before any other error, since a missing required
        flag is often a misspelled one."""
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
        """Yields this parser and those of the subcommands in the command line."""
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
    """Returns the parsers of an action's subcommands; None for a flag or an argument."""
    choices: Any = action.choices
    return choices if isinstance(action, argparse._SubParsersAction) else None  # pyright: ignore[reportPrivateUsage]
