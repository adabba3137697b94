"""Writes the reference pages of the documentation from the code: one function for each page.

    .venv/bin/python docs/generate.py

Run it after a change of a command, a config, a metric, a route, an API or a behaviour. `tests/docs/test_pages.py` fails
while a committed page differs from what this script makes.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from ottla.broker.config.definitions import AUTHORIZER_FACTS, BEHAVIOUR_PREFIX, ONLY_IF_SET, OWN_FACTS, Fact, facts
from ottla.broker.config.docs import documentation
from ottla.broker.config.node_configs import MAY_DIFFER
from ottla.broker.config.values import ACTED_ON
from ottla.broker.releases.profiles import behaviour_kinds, own_profile
from ottla.tools.main import COMMANDS, load

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"

INTRODUCTIONS = {
    "cli": """
# Command line

`ottla COMMAND --help` prints the same. An error in the arguments is one line on stderr with the nearest flag or command
that exists, and exit code 2; nothing on disk has changed then. [Which tool for which question](../guides/which-tool.md)
helps to choose a command, [the broker and its flags](../guides/serve.md) explains `ottla serve`.
""",
    "configs": """
# Configs

Names, types, defaults and ranges are Apache Kafka's. This page has them as Ottla's own profile does; with `--release X`
they are those of that release (`ottla releases X` prints them). [Configuration](../guides/configuration.md) explains
where values come from. *Change* is what a running broker can change: the value of one **broker**, of the **cluster**,
of a **topic**; or nothing without a **restart**.
""",
    "http-api": """
# HTTP API

A broker with `--control HOST:PORT` serves this API; [the control plane](../guides/control.md) introduces it.
`GET /v1/openapi.json` returns the OpenAPI 3.1 document from which this page is made. A request
needs `Authorization: Bearer TOKEN` unless the broker serves it [on a loopback address without a
token](../guides/control.md#access).
""",
    "metrics": """
# Metrics

`GET /metrics` of a broker with `--control` reports these, in the text format of Prometheus or in OpenMetrics.
[Metrics, health and logs](../guides/monitoring.md) explains names, labels and cost. Besides these there are the usual
metrics of a Python process, `process_*` and `python_*`.
""",
    "apis": """
# APIs by release

The third column has the versions that Kafka's brokers advertise, each from the named release on: with ZooKeeper up to
3.2, with KRaft from 3.3. `ottla serve --release X` advertises and serves the same versions of each API that is served
here; without `--release` the broker serves all versions of the last column. A request for anything else closes the
connection, as in Kafka, and the log names it. Ottla's own profile has
[two additions to the protocol](../guides/releases.md#additions-to-the-protocol).
""",
    "releases": """
# Releases

The releases that `ottla serve --release` behaves as, each with the [behaviours](behaviours.md) that differ from the
release before it; the first row has all values. `ottla releases 3.9 4.0` prints the whole difference, with APIs and
configs. [Behave as a release](../guides/releases.md) introduces them.
""",
    "behaviours": """
# Behaviours

A behaviour is one difference between releases of Kafka. A profile sets all of them; each can also be set alone:
`ottla serve --override ottla.behaviour.cached_batches=1`. *Own* is the value without `--release`.
""",
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty cells stay empty."""
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def code(text: object) -> str:
    return f"`{text}`"


def name_of(text: str) -> str:
    """A long name in a narrow column: it may break after each dot or underscore."""
    return "<code>" + text.replace(".", ".<wbr>").replace("_", "_<wbr>") + "</code>"


def cell(text: str) -> str:
    """Text for a paragraph or a cell of a table: one line, and no mark-up but code between backticks."""
    parts = " ".join(text.split()).split("`")
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(r"([*_])", r"\\\1", parts[index].replace("<", "&lt;")).replace("|", "&#124;")
    return "`".join(parts)


class _Shown(Exception):
    """The parser whose help would be printed."""


def parser_of(command: Callable[[list[str]], int], *arguments: str) -> argparse.ArgumentParser:
    """The parser with which a command reads its arguments: that of `--help`, which is not printed."""

    def show(self: argparse.ArgumentParser, file: Any = None) -> NoReturn:
        raise _Shown(self)

    original = argparse.ArgumentParser.print_help
    argparse.ArgumentParser.print_help = show  # type: ignore[method-assign]
    try:
        command([*arguments, "--help"])
    except _Shown as shown:
        return shown.args[0]
    finally:
        argparse.ArgumentParser.print_help = original  # type: ignore[method-assign]
    raise ValueError(f"{command} has no help")


def _flags(action: argparse.Action) -> str:
    """The flags of an action with its value, or the name of a positional argument."""
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if isinstance(value, tuple):
        value = " ".join(value)
    if action.choices is not None and action.metavar is None:
        value = "|".join(map(str, action.choices))
    if not action.option_strings:
        return code({"*": f"[{value} ...]", "+": f"{value} ...", "?": f"[{value}]"}.get(str(action.nargs), value))
    takes = "" if action.nargs == 0 else f" {value}"
    return ", ".join(code(flag + takes) for flag in action.option_strings)


def _rows(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    formatter = parser._get_formatter()
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        text = formatter._expand_help(action) if action.help else ""
        if action.required and action.option_strings:
            text = f"{text} (required)".strip()
        yield _flags(action), cell(text)


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """The section of a command, and those of its subcommands."""
    title = parser.prog
    yield f"{'#' * level} {title}"
    if parser.description:
        description = " ".join(parser.description.split())
        yield cell(description[:1].upper() + description[1:]).removesuffix(".") + "."
    if rows := [*_rows(parser)]:
        yield table(("argument", "meaning"), rows)
    if parser.epilog:
        is_layout = isinstance(parser._get_formatter(), argparse.RawDescriptionHelpFormatter)
        yield f"```text\n{parser.epilog.strip()}\n```" if is_layout else cell(parser.epilog)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _command(sub, min(level + 1, 5))


def cli() -> str:
    """Every command with its flags, from the parsers themselves."""
    parts: list[str] = []
    for title, listed in COMMANDS.items():
        parts.append(f"## {title}")
        parts.append(
            table(("command", "purpose"), ((f"[`ottla {n}`](#ottla-{n})", cell(t)) for n, (_, t) in listed.items()))
        )
        for name in listed:
            run = load(name)
            assert run is not None
            if name == "pipeline":
                parts += ["### ottla pipeline", cell(parser_of(run).description or "")]
                (jobs,) = (a for a in parser_of(run)._actions if isinstance(a, argparse._SubParsersAction))
                for job in jobs.choices:  # the parser without a job's name has their names alone
                    parts += _command(parser_of(run, job), 4)
            else:
                parts += _command(parser_of(run), 3)
    return "\n\n".join(parts)


def _listed(scope: str, acted_on: bool) -> list[Fact]:
    own = {fact.name for fact in OWN_FACTS}
    return [
        fact
        for name, fact in sorted(facts(scope).items())
        if (name in ACTED_ON) is acted_on
        and name not in own
        and not name.startswith(BEHAVIOUR_PREFIX)
        and (not fact.internal or fact in AUTHORIZER_FACTS or name in ONLY_IF_SET)
    ]


def _default(fact: Fact) -> str:
    if fact.default is None:
        return "none"
    return code(fact.default) if fact.default else '`""`'


def _changed(fact: Fact) -> str:
    if fact.scope == "topic":
        return "topic"
    return {None: "restart", "cluster": "cluster", "per-broker": "broker"}[None if fact.read_only else fact.dynamic]


def configs() -> str:
    """The configs: what the broker acts on with default and effect, and what it accepts without effect."""
    parts: list[str] = []
    for scope, title in (("broker", "Broker"), ("topic", "Topic")):
        rows = [
            (name_of(f.name), f.type.lower(), _default(f), _changed(f), cell(documentation(f.name)))
            for f in _listed(scope, True)
        ]
        parts += [f"## {title} configs", table(("name", "type", "default", "change", "effect"), rows)]
    own = [(name_of(f.name), f.type.lower(), _default(f), cell(documentation(f.name))) for f in OWN_FACTS]
    parts += [
        "## Ottla's own configs",
        "Besides these, each [behaviour](behaviours.md) of a release can be set by `ottla.behaviour.NAME`.",
        table(("name", "type", "default", "effect"), own),
        "## Configs of single nodes",
        "These, and all configs without effect, can have [another value for one node]"
        "(../guides/configuration.md#configs-of-single-nodes) of several in one process, set by `node.ID.NAME`:",
        ", ".join(code(name) for name in sorted(MAY_DIFFER)),
        "## Accepted without effect",
        "The broker reads these, checks their values and shows them in DescribeConfigs, and does not act on them. "
        "Setting one is logged as a warning.",
    ]
    for scope in ("broker", "topic", "group"):
        names = ", ".join(code(fact.name) for fact in _listed(scope, False))
        parts.append(f'??? note "{scope.capitalize()}: {len(_listed(scope, False))} configs"\n\n    {names}')
    return "\n\n".join(parts)


def http_api() -> str:
    """The routes of the control plane, and the fields of what it takes and returns, from its OpenAPI document."""
    from ottla.broker.control.openapi import document
    from ottla.broker.control.route import BASE
    from ottla.broker.control.routes import ROUTES

    described = document(ROUTES)
    rows: list[tuple[str, ...]] = []
    for route in ROUTES:
        operation = described["paths"][BASE + route.path][route.method.lower()]
        query = ", ".join(code(one["name"]) for one in operation.get("parameters", ()) if one["in"] == "query")
        body = ""
        if "requestBody" in operation:
            body = _type(operation["requestBody"]["content"]["application/json"]["schema"])
        good = operation["responses"][str(route.status)]["content"]["application/json"]["schema"]
        rows.append((f"`{route.method} {BASE}{route.path}`", cell(route.summary), query, body, _type(good)))
    parts = [
        "## Routes",
        table(("route", "purpose", "query", "body", "returns"), rows),
        "## Types",
    ]
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts.append(f"### {name}")
        if text := schema.get("description"):
            parts.append(cell(text))
        if properties := schema.get("properties"):
            needed = set(schema.get("required", ()))
            fields = [
                (code(field), _type(one) + ("" if field in needed else ", optional"), cell(one.get("description", "")))
                for field, one in properties.items()
            ]
            if any(row[2] for row in fields):
                parts.append(table(("field", "type", "meaning"), fields))
            else:
                parts.append(table(("field", "type"), (row[:2] for row in fields)))
        else:
            parts.append(_type(schema))
    return "\n\n".join(parts)


def _type(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words, with links to the types that it names."""
    if ref := schema.get("$ref"):
        name = ref.rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("enum"):
        return " or ".join(code(choice) for choice in choices)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return f"list of {_type(items)}" if items else "list"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    if isinstance(kind, list):
        return " or ".join(kind)
    return kind or "any"


def metrics() -> str:
    """What `/metrics` reports, from the collector's table."""
    from ottla.broker.metrics.families import FAMILIES

    rows = [
        (name_of(one.shown), one.kind, ", ".join(code(label) for label in one.labels), cell(one.help))
        for one in FAMILIES
    ]
    return table(("name", "type", "labels", "meaning"), rows)


def apis() -> str:
    """The APIs that Kafka's releases advertise, and the versions that are served here."""
    from ottla.broker.network.router import apis_of
    from ottla.tools.release_table import apis_markdown

    return apis_markdown(apis_of(own_profile(), telemetry=True).served)


def releases() -> str:
    """The table of releases, from that of `ottla releases`."""
    from ottla.tools.release_table import markdown

    return markdown()


def behaviours() -> str:
    """What can be set one by one: name, values, Ottla's own value, and the sentence of the declaration."""
    source = ast.parse((ROOT / "broker" / "releases" / "behaviour.py").read_text())
    body = next(node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Behaviour")
    rows: list[tuple[str, ...]] = []
    for field, described in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(described, ast.Expr):
            kind = behaviour_kinds()[field.target.id]
            values = "`true`, `false`" if kind is bool else "a number"
            if isinstance(kind, tuple):
                values = ", ".join(map(code, kind))
            assert isinstance(described.value, ast.Constant)
            own = str(getattr(own_profile().behaviour, field.target.id)).lower()
            rows.append((code(field.target.id), values, code(own), cell(str(described.value.value))))
    assert len(rows) == len(behaviour_kinds())
    return table(("`ottla.behaviour.`", "values", "own", "meaning"), rows)


PAGES: dict[str, Callable[[], str]] = {
    "cli": cli,
    "configs": configs,
    "http-api": http_api,
    "metrics": metrics,
    "apis": apis,
    "releases": releases,
    "behaviours": behaviours,
}
NOTE = "<!-- Made by docs/generate.py from the code: change it there. -->\n\n"


def page(name: str) -> str:
    """The text of a reference page."""
    return f"{NOTE}{INTRODUCTIONS[name].strip()}\n\n{PAGES[name]()}\n"


if __name__ == "__main__":
    for name in PAGES:
        (REFERENCE / f"{name}.md").write_text(page(name))
