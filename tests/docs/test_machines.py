"""The drawings and tables of the state machines are those of the code."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from ottla_testing.sessions import DOCS


@pytest.fixture
def machines() -> ModuleType:
    spec = importlib.util.spec_from_file_location("machines", DOCS / "machines.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["machines"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_committed_files_are_those_of_the_script(machines: ModuleType) -> None:
    """And their states and cells are complete. One test, as each process of a run would explore the machines again."""
    every_state_of_a_table_has_a_place(machines)
    every_cell_that_can_act_is_reached(machines)
    for path, text in machines.files().items():
        assert path.read_text() == text, f"{path}: run .venv/bin/python docs/machines.py"


def every_state_of_a_table_has_a_place(machines: ModuleType) -> None:
    for machine in machines.MACHINES:
        reached = {state.value for after in machine.edges().values() for state in after}
        assert {state.value for state, _ in machine.table} | reached == set(machine.places)


def every_cell_that_can_act_is_reached(machines: ModuleType) -> None:
    """An outcome of a write comes before any other event: the group is still in the state that wrote."""
    for machine in machines.MACHINES:
        found = machine.edges()
        missing = {
            cell
            for cell, act in machine.table.items()
            if cell not in found and act.__name__ not in ("_nothing", "nothing")
        }
        assert {kind.__name__ for _, kind in missing} <= {"Persisted", "PersistFailed"}, missing
