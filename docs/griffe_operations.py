"""An extension of griffe for the Python reference: signatures of operations.

A class lists its operations as `name = operation(coroutine_function)`, without a signature of its own
(`broker/testing/calls.py`), or by a function that calls `operation`. This extension replaces each such attribute by a
function with the parameters of that coroutine function, less the first one, and with the docstring of the attribute or
else of the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_OPERATION = re.compile(r"(?:operation|_moving|_at_topology)\((\w+(?:\.\w+)?)[,)]")


def _classes(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Class]:
    for member in parent.members.values():
        if isinstance(member, griffe.Module | griffe.Class):
            if isinstance(member, griffe.Class):
                yield member
            yield from _classes(member)


class OperationSignatures(griffe.Extension):
    """Gives operations the signatures of the coroutine functions that they run."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Replaces the operations of all classes of a package."""
        for cls in list(_classes(pkg)):
            for name, member in list(cls.members.items()):
                called = _OPERATION.match(str(member.value)) if isinstance(member, griffe.Attribute) else None
                if called is not None:
                    cls.set_member(name, _function(member, called[1], loader))


def _function(attribute: Any, called: str, loader: griffe.GriffeLoader) -> griffe.Function:
    head, _, rest = called.partition(".")
    path = attribute.resolve(head) + (f".{rest}" if rest else "")
    target = loader.modules_collection[path]
    return griffe.Function(
        attribute.name,
        parameters=griffe.Parameters(*list(target.parameters)[1:]),
        returns=None if "finish=" in str(attribute.value) else target.returns,  # `finish` returns something else
        lineno=attribute.lineno,
        docstring=attribute.docstring or target.docstring,
        parent=attribute.parent,
    )
