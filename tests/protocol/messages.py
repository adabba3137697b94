"""Every declared message and record, found by walking `ottla.protocol.messages`."""

from __future__ import annotations

import importlib
import pkgutil

from ottla.protocol import messages, schema

for _module in pkgutil.iter_modules(messages.__path__):
    importlib.import_module(f"ottla.protocol.messages.{_module.name}")

MESSAGES: dict[str, type] = {cls.__name__: cls for cls in schema._specs if cls.__module__.startswith(messages.__name__)}
CASES = [(name, version) for name, cls in sorted(MESSAGES.items()) for version in schema.spec(cls).versions.range()]
