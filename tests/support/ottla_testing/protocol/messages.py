"""Every declared message and internal record, found by walking `ottla.protocol`'s two packages of them."""

from __future__ import annotations

import importlib
import pkgutil

from ottla.protocol import internal_records, messages, schema

PACKAGES = (messages, internal_records)
for _package in PACKAGES:
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)

MESSAGES: dict[str, type] = {
    cls.__name__: cls
    for cls in schema._specs
    if cls.__module__.startswith(tuple(package.__name__ for package in PACKAGES))
}
CASES = [(name, version) for name, cls in sorted(MESSAGES.items()) for version in schema.spec(cls).versions.range()]
