"""Decisions of our authorizer and of Apache Kafka's StandardAuthorizer, on random access control lists and questions.

One difference is left out: of names that begin with an asterisk Kafka's does not see the entries for all resources,
those that deny neither. Topics have no such names, groups may. AclAuthorizer saw them, and ours does.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ottla.broker.config.java_classes import AuthorizerSettings
from ottla.broker.security.acls import Acl, Acls
from ottla.broker.security.standard import StandardAuthorizer
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.records.steps import Steps
from ottla_testing.interop.checks import Check, Failed, jars, java

RELEASES = ("3.9.1", "4.3.1", "4.4.0")
WORLDS, ENTRIES_MAX, QUESTIONS = 1000, 14, 20
SEED = int(os.environ.get("OTTLA_DECISIONS_SEED", "1"))
TYPES = (ResourceType.TOPIC, ResourceType.GROUP)
PRINCIPALS = ("User:a", "User:b", "User:*", "Group:a", "User:a:b", "User:")
ASKERS = tuple(one for one in PRINCIPALS if one != "User:*")  # which 4.3 cannot query
HOSTS = ("127.0.0.1", "10.0.0.1", "*")
BLOCKS = ("127.0.0.0/8", "10.0.0.1/32", "0.0.0.0/0", "10.0.0.9/29", "::/0", "nonsense/1")  # since 4.4
OPERATIONS = [one for one in AclOperation if AclOperation.ANY < one <= AclOperation.DESCRIBE_TOKENS]
Words = Sequence[Any]


class _Nowhere:
    """A metadata log that keeps nothing."""

    def prepare_steps(self, records: Any, now_ms: int) -> Steps[Any]:
        yield from ()
        return records

    def write(self, prepared: Any, now_ms: int) -> None:
        pass


def name(source: random.Random) -> str:
    """Returns a short name of few letters, so that many are prefixes of others, or one that Kafka's code treats
    specially."""
    if source.random() < 0.1:
        return source.choice(("*", "hardcode", "hard", "ü"))
    return "".join(source.choice("ab") for _ in range(source.randint(1, 4)))


def entry(source: random.Random) -> Acl:
    common = source.random() < 0.7  # operations that are queried often
    return Acl(
        source.choice(TYPES),
        name(source),
        source.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        source.choice(PRINCIPALS),
        source.choice((*HOSTS, "*", *BLOCKS)),
        source.choice((2, 3, 4) if common else OPERATIONS),
        source.choice((PermissionType.DENY, PermissionType.ALLOW, PermissionType.ALLOW)),
    )


def world(source: random.Random, *, cidr_hosts: bool) -> tuple[list[Words], list[bool]]:
    """Returns lines for the other side: an authorizer, its entries, questions; and our decisions on these."""
    everyone = source.random() < 0.3
    super_users = ["User:b"] if source.random() < 0.2 else []
    acls = Acls(_Nowhere(), lambda: source.randbytes(16))  # type: ignore[arg-type]
    acls.add([entry(source) for _ in range(source.randint(0, ENTRIES_MAX))], 0)
    ours = StandardAuthorizer(acls, AuthorizerSettings(frozenset(super_users), everyone), cidr_hosts=cidr_hosts)
    lines: list[Words] = [("new", str(everyone).lower(), ";".join(super_users))]
    lines += [("acl", *acl) for acl in acls]
    responses = []
    for _ in range(QUESTIONS):
        common = source.random() < 0.7
        operation = AclOperation(source.choice((3, 4, 8, 10)) if common else source.choice(OPERATIONS))
        requested = source.choice(ASKERS), source.choice(HOSTS[:2]), operation, source.choice(TYPES)
        if source.random() < 0.3:
            lines.append(("any", *requested))
            responses.append(ours.allows_any(*requested))
        else:
            lines.append(("one", *requested, name(source)))
            responses.append(ours.allows(*requested, lines[-1][5]))
    return lines, responses


def shown(lines: Sequence[Words]) -> Iterator[str]:
    for line in lines:
        yield "\t".join(str(int(word) if isinstance(word, int) else word) for word in line)


def run(release: str) -> str:
    """Runs all worlds in one process of Java."""
    classes = jars(f"kafka-{release}", [f"org.apache.kafka:kafka_2.13:{release}"])
    source = random.Random(SEED)
    worlds = [world(source, cidr_hosts=release == "4.4.0") for _ in range(WORLDS)]
    sent = "".join(f"{line}\n" for lines, _ in worlds for line in shown(lines))
    program = java(classes, Path(__file__).with_name("Decisions.java"))
    done = subprocess.run(program, input=sent, capture_output=True, text=True, encoding="utf-8", timeout=600)
    if done.returncode:
        raise Failed(done.stderr[-2000:])
    theirs = iter(done.stdout.split())
    allowed = 0
    for number, (lines, responses) in enumerate(worlds):
        questions = [line for line in lines if line[0] in ("one", "any")]
        for question, response in zip(questions, responses, strict=True):
            if (found := next(theirs)) != str(response).lower():
                result = "\n".join(shown([*(line for line in lines if line not in questions), question]))
                raise Failed(f"seed {SEED}, world {number}: Kafka decides {found}, ours {response} of\n{result}")
            allowed += response
    count = WORLDS * QUESTIONS
    return f"{count} decisions on {WORLDS} random sets of entries are the same ({allowed} of them allow), seed {SEED}"


CHECKS = [
    Check(f"decisions of the authorizer of Kafka {release}", lambda release=release: run(release))
    for release in RELEASES
]
