"""Our declarations against the message definitions inside Apache's own jars, and our bytes through its own classes."""

from __future__ import annotations

import json
import random
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from ottla.protocol import schema
from ottla.protocol.compiler import build
from ottla_testing.interop.checks import Check, Failed, jars, java
from ottla_testing.protocol import apache, apache_definitions
from ottla_testing.protocol.messages import MESSAGES
from ottla_testing.protocol.values import random_value

NEWEST, LAST_OF_3 = "4.4.0", "3.9.1"
# Jars whose records we write into logs; their classes hold the definitions, compiled.
RECORD_JARS = ["kafka-metadata", "kafka-group-coordinator", "kafka-transaction-coordinator", "kafka-server-common"]
NEW_RECORD_JARS = ["kafka-share-coordinator"]  # not in the last release of 3
FRAMES_PER_VERSION = 20
# Message -> field -> its name in the newest release.
RENAMED = {"TxnOffsetCommitRequest": {"GenerationId": "GenerationIdOrMemberEpoch"}}
EARLY = (
    "ShareGroup",
    "ShareSnapshot",
    "ShareUpdate",
)  # messages and records that the last release of 3 had in an early form
LACKING: dict[str, set[tuple[str, int]]] = {}
"""The messages for which each release had no class, once compared; both together must have all."""
UNSTABLE: set[tuple[str, int]] = set()
"""The messages whose version was unstable in the last release of 3, once its definitions were compared."""


def client_jars(version: str) -> Path:
    return jars(f"kafka-clients-{version}", [f"org.apache.kafka:kafka-clients:{version}"])


def compare_definitions(version: str) -> str:
    """Compares every version of every message that the jar defines; others are compared with the other jar."""
    (jar,) = client_jars(version).glob("kafka-clients-*.jar")
    compared = 0
    lacks: list[str] = []
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(api + kind for api in apache_definitions.APIS for kind in ("Request", "Response")):
            try:
                text = archive.read(f"common/message/{name}.json").decode()
            except KeyError:
                if version == NEWEST:
                    raise Failed(f"{jar.name} has no {name}.json") from None
                lacks.append(name)
                continue
            found = apache_definitions.definition(json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M)))
            last = schema.Versions.of(found["versions"]).last
            # Later releases changed that version. Only the definition of the request has the mark.
            if version == LAST_OF_3 and (found["unstable"] or (name.replace("Response", "Request"), last) in UNSTABLE):
                UNSTABLE.add((name, last))
                found["versions"] = f"0-{last - 1}"
                if not last:
                    lacks.append(name)
                    continue
            for field in found["fields"]:
                field["name"] = RENAMED.get(name, {}).get(field["name"], field["name"])
            compared += compare_one(name, found)
    messages = 2 * len(apache_definitions.APIS) - len(lacks)
    has_not = f"; it has not: {', '.join(lacks)}" if lacks else ""
    return f"{compared} versions of {messages} messages are declared as in {jar.name}{has_not}"


def compare_one(name: str, found: dict[str, Any]) -> int:
    declared = schema.spec(MESSAGES[name])
    theirs = schema.Versions.of(found["versions"])
    last = min(theirs.last, declared.versions.last)
    if found["key"] != declared.api_key or last < theirs.last - (1 if found["unstable"] else 0):
        raise Failed(f"{name}: key {found['key']}, versions to {last}; declared: {declared}")
    found["fields"] = [f for f in found["fields"] if schema.Versions.of(f["versions"]).first <= last]
    for version in range(theirs.first, last + 1):
        flexible = version in schema.Versions.of(found["flexible"])
        try:
            apache.compare(schema.group_of(MESSAGES[name], version), found["fields"], version, flexible, name)
        except AssertionError as error:
            raise Failed(f"{name} v{version}: {error}") from None
    return last + 1 - theirs.first


def compare_bytes(version: str) -> str:
    """Compares random frames of every message and version: Apache's classes must read and write them without a
    change."""
    records = [f"org.apache.kafka:{artifact}:{version}" for artifact in RECORD_JARS]
    if version != LAST_OF_3:
        records += [f"org.apache.kafka:{artifact}:{version}" for artifact in NEW_RECORD_JARS]
    folder = jars(f"codec-{version}", [f"org.apache.kafka:kafka-clients:{version}", *records], alone=True)
    source = random.Random(version)
    requested: list[tuple[str, int, str]] = []
    lacking: dict[str, list[int]] = {}
    for name, cls in sorted(MESSAGES.items()):
        for number in schema.spec(cls).versions.range():
            layout = schema.group_of(cls, number)
            values = [random_value(layout, source, extensions=False) for _ in range(FRAMES_PER_VERSION)]
            if version == LAST_OF_3 and ((name, number) in UNSTABLE or name.startswith(EARLY)):
                lacking.setdefault(name, []).append(number)
                continue
            frames = [build(value, number).hex() for value in values]
            requested += [(name, number, frame) for frame in frames]
    text = "".join(f"{name} {number} {frame}\n" for name, number, frame in requested)
    command = java(folder, Path(__file__).with_name("Codec.java"))
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    responses = done.stdout.splitlines()
    if done.returncode or len(responses) != len(requested):
        raise Failed(f"Codec.java ended with {done.returncode}: {done.stderr[-1000:]}")
    same = 0
    for (name, number, frame), response in zip(requested, responses, strict=True):
        if response == "-":
            if number not in (seen := lacking.setdefault(name, [])):
                seen.append(number)
        elif response != frame:
            raise Failed(f"{name} v{number}: {frame} came back as {response}")
        else:
            same += 1
    LACKING[version] = {(name, number) for name, numbers in lacking.items() for number in numbers}
    if nowhere := set.intersection(*LACKING.values()) if len(LACKING) == 2 else set():
        raise Failed(f"neither release has {sorted(nowhere)}: no class of Apache's has read these")
    left = ", ".join(f"{name} {numbers}" for name, numbers in lacking.items()) or "nothing"
    return f"{same} frames came back unchanged from Apache {version}; it has not: {left}"


CHECKS = [
    *(Check(f"definitions in kafka-clients {v}", lambda v=v: compare_definitions(v)) for v in (NEWEST, LAST_OF_3)),
    *(Check(f"bytes through Apache {v}'s classes", lambda v=v: compare_bytes(v)) for v in (NEWEST, LAST_OF_3)),
]
