"""The codec of kafka-python 2.0.2 as a process: runs in an environment of its own, imports nothing of Ottla.

One JSON line in, one out. `{"name": "FetchRequest", "version": 3, "hex": "..."}` returns `{"value": ..., "hex": ...}`:
the parsed value, and the bytes written for it. `{"name", "version", "value"}` returns `{"hex"}`. A value is a list of
fields in wire order; bytes are `{"bytes": hex}`. A line `{}` returns the versions of each class.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import io
import json
import sys
import types
from pathlib import Path

import six  # of that environment

# The package's own __init__ imports the whole client, whose bundled `six` fails from Python 3.12 on. The codec needs
# neither: an empty package replaces the client and the `six` of the environment the bundled one.
spec = importlib.util.find_spec("kafka")
assert spec is not None
assert spec.origin is not None
package = types.ModuleType("kafka")
package.__path__ = [str(Path(spec.origin).parent)]
sys.modules |= {"kafka": package, "kafka.vendor.six": six, "kafka.vendor.six.moves": six.moves}

# Older names of today's messages.
NAMES = {
    "ApiVersionRequest": "ApiVersionsRequest",
    "ApiVersionResponse": "ApiVersionsResponse",
    "GroupCoordinatorRequest": "FindCoordinatorRequest",
    "GroupCoordinatorResponse": "FindCoordinatorResponse",
    "OffsetRequest": "ListOffsetsRequest",
    "OffsetResponse": "ListOffsetsResponse",
    "SaslHandShakeRequest": "SaslHandshakeRequest",
    "SaslHandShakeResponse": "SaslHandshakeResponse",
}


def classes() -> dict:
    found = {}
    for part in ("admin", "commit", "fetch", "group", "metadata", "offset", "produce"):
        for name, cls in vars(importlib.import_module("kafka.protocol." + part)).items():
            stem, mark, version = name.rpartition("_v")
            if mark and inspect.isclass(cls):
                found[NAMES.get(stem, stem), int(version)] = cls
    return found


def plain(value):
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def rich(value):
    if isinstance(value, list):
        return [rich(item) for item in value]
    return bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value


def respond(found: dict, request: dict) -> dict:
    if not request:
        versions = {}
        for name, version in found:
            versions.setdefault(name, []).append(version)
        return {"classes": versions}
    schema = found[request["name"], request["version"]].SCHEMA
    if "value" in request:
        return {"hex": schema.encode(rich(request["value"])).hex()}
    stream = io.BytesIO(bytes.fromhex(request["hex"]))
    value = schema.decode(stream)
    return {"value": plain(value), "hex": schema.encode(value).hex(), "left": len(stream.read())}


def main() -> None:
    found = classes()
    for line in sys.stdin:
        try:
            reply = respond(found, json.loads(line))
        except Exception as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
