"""The report on what interrupted jobs have left.

The document of `to_json`: {"runs": [{kind, path, what, files, bytes, changed (epoch ms or null), state, problem}]},
where the state is left, removed or kept; the problem of a kept one is a sentence, else null.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from ....protocol.text import moment, plural, size
from .unfinished import Unfinished


@dataclass(slots=True)
class RunsReport:
    """What was found in these paths; `removed` by its path, `problems` of what was not."""

    paths: list[str]
    found: list[Unfinished]
    removed: set[str] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        """Returns a line for each run, and its problem."""
        if not self.found:
            return f"{', '.join(self.paths)}: no job has left anything\n"
        lines: list[str] = []
        for one in self.found:
            done = "removed: " if one.path in self.removed else ""
            when = f", last changed {moment(one.changed_ms)} UTC" if one.changed_ms is not None else ""
            amount = f"{plural(one.files, 'file')}, {size(one.bytes)}"
            lines.append(f"{one.path}: {done}{one.kind}: {one.what}; {amount}{when}")
            if one.path not in self.removed and (problem := self._problem(one)):
                lines.append(f"  kept: {problem}")
        return "".join(f"{line}\n" for line in lines)

    def _problem(self, one: Unfinished) -> str:
        return self.problems.get(one.path, one.kept)

    def to_json(self) -> str:
        """Returns one JSON document."""
        runs = []
        for one in self.found:
            document = asdict(one)
            del document["place"]
            document["changed"] = document.pop("changed_ms")
            problem = "" if one.path in self.removed else self._problem(one)
            del document["kept"]
            state = "removed" if one.path in self.removed else "kept" if problem else "left"
            runs.append({**document, "state": state, "problem": problem or None})
        return json.dumps({"runs": runs}, indent=2) + "\n"
