"""Writes the generated parts of `README.md`: the served APIs, the releases, the two kinds of configs, the routes of the
control plane, and its metrics.

Run it after changing one of them:

    .venv/bin/python tests/make_readme.py

A generated part stands between `<!-- NAME -->` and `<!-- /NAME -->`; `test_readme.py` fails when one is out of date.
"""

from __future__ import annotations

import ast
import itertools
import re

from ottla.broker.config.definitions import AUTHORIZER_FACTS, BEHAVIOUR_PREFIX, ONLY_IF_SET, OWN_FACTS, facts
from ottla.broker.config.values import ACTED_ON
from ottla.broker.releases.profiles import behaviour_kinds
from ottla_testing import ROOT

README = ROOT / "README.md"


def served() -> str:
    """The table of APIs and versions, from the router's own."""
    from ottla.broker.network.router import ROUTES
    from ottla.tools.release_table import apis_markdown

    return apis_markdown({key: route.versions for key, route in ROUTES.items()})


def _words(scope: str, acted_on: bool) -> str:
    own = {fact.name for fact in OWN_FACTS} | {name for name in facts(scope) if name.startswith(BEHAVIOUR_PREFIX)}
    names = [
        n
        for n, fact in facts(scope).items()
        if (n in ACTED_ON) is acted_on
        and n not in own
        and (not fact.internal or fact in AUTHORIZER_FACTS or n in ONLY_IF_SET)
    ]
    return ", ".join(f"`{name}`" for name in sorted(names))


def _shown(default: str | None) -> str:
    return "none" if default is None else f"`{default}`"


def acted_on() -> str:
    """The configs that change what Ottla does."""
    own = ", ".join(f"`{fact.name}` (default {_shown(fact.default)})" for fact in OWN_FACTS if fact.name in ACTED_ON)
    return f"Broker: {_words('broker', True)}.\n\nTopic: {_words('topic', True)}.\n\nOttla's own: {own}."


def not_acted_on() -> str:
    """The configs that are read, checked and shown, and change nothing."""
    listed = [f"{scope.capitalize()}: {_words(scope, False)}." for scope in ("broker", "topic", "group")]
    return "\n\n".join(listed)


def releases() -> str:
    """The table of releases, from the command's own."""
    from ottla.tools.release_table import markdown

    return markdown()


def behaviours() -> str:
    """What can be set one by one: name, values, Ottla's own, and the sentence that the declaration has."""
    source = ast.parse((README.parent / "broker" / "releases" / "behaviour.py").read_text())
    body = next(node.body for node in source.body if isinstance(node, ast.ClassDef) and node.name == "Behaviour")
    rows = ["| `ottla.behaviour.` | values | own | |", "|---|---|---|---|"]
    for field, told in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(told, ast.Expr):
            kind = behaviour_kinds()[field.target.id]
            values = "true, false" if kind is bool else "a number"
            if isinstance(kind, tuple):
                values = ", ".join(map(str, kind))
            assert isinstance(told.value, ast.Constant) and field.value is not None
            own = str(ast.literal_eval(field.value)).lower()
            sentences = " ".join(str(told.value.value).split())
            rows.append(f"| `{field.target.id}` | {values} | {own} | {sentences} |")
    assert len(rows) == 2 + len(behaviour_kinds())
    return "\n".join(rows)


def routes() -> str:
    """What the control plane serves, from its table of routes."""
    from ottla.broker.control.route import BASE
    from ottla.broker.control.routes import ROUTES

    rows = ["| | | body | |", "|---|---|---|---|"]
    for route in ROUTES:
        named = () if route.query is None else route.query.__struct_fields__
        query = "".join(f"{'&' if number else '?'}{name}=" for number, name in enumerate(named))
        properties = () if route.body is None else route.body.__struct_fields__
        body = ", ".join(f"`{name}`" for name in properties) if len(properties) < 10 else "a rule"
        rows.append(f"| {route.method} | `{BASE}{route.path}{query}` | {body} | {route.summary} |")
    return "\n".join(rows)


def metrics() -> str:
    """What `/metrics` tells, from the collector's own table."""
    from ottla.broker.metrics.families import FAMILIES

    rows = ["| | labels | |", "|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        kind = "" if family.kind in ("counter", "gauge") else f" ({family.kind})"
        rows.append(f"| `{family.shown}`{kind} | {labels} | {family.help} |")
    return "\n".join(rows)


PARTS = {
    "routes": routes,
    "metrics": metrics,
    "releases": releases,
    "behaviours": behaviours,
    "served": served,
    "acted-on": acted_on,
    "not-acted-on": not_acted_on,
}


def part_of(text: str, name: str) -> str:
    """What stands in the README between the marks of a part."""
    match = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", text, re.DOTALL)
    assert match, f"README.md has no part {name}"
    return match[1].strip()


def replaced(text: str, name: str, content: str) -> str:
    """The README with a part written anew."""
    pattern = rf"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)"
    return re.sub(pattern, lambda match: f"{match[1]}\n{content}\n{match[2]}", text, flags=re.DOTALL)


if __name__ == "__main__":
    content = README.read_text()
    for part, make in PARTS.items():
        content = replaced(content, part, make())
    README.write_text(content)
