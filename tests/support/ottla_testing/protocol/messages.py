"""Every declared message and internal record, found by walking `ottla.protocol`'s two packages of them."""

from __future__ import annotations

import importlib
import pkgutil

from ottla.protocol import internal_records, messages, schema
from ottla.protocol.internal_records.layouts import LAYOUTS

PACKAGES = (messages, internal_records)
for _package in PACKAGES:
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)

_LAYOUTS = [layout for layouts in LAYOUTS.values() for layout in layouts.values()]
KEY_TYPES = {layout.value.__name__[: -len("Value")] + "Key": schema.spec(layout.value).api_key for layout in _LAYOUTS}
"""The types of keys by Apache's names; several have the same class here."""
_KEYS = {layout.value.__name__[: -len("Value")] + "Key": layout.key for layout in _LAYOUTS}
MESSAGES: dict[str, type] = _KEYS | {
    cls.__name__: cls
    for cls in schema._specs
    if cls.__module__.startswith(tuple(package.__name__ for package in PACKAGES)) and cls not in _KEYS.values()
}
CASES = [(name, version) for name, cls in sorted(MESSAGES.items()) for version in schema.spec(cls).versions.range()]
