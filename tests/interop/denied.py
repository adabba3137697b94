"""The difference run for a user who may do little: random admin calls of a client that has logged in, to an Apache
Kafka and to ours, with compared responses.

Another client, a super user, makes topics and groups, and from time to time gives the user a right or takes it away.
What `difference.py` has in its docstring holds here, too.
"""

from __future__ import annotations

import os
import secrets
from random import Random
from typing import Any

import apache_kafka
from call_values import World
from difference import CALLS, Run
from random_calls import Call, Calls
from side_by_side import SETTINGS, Pair, RawClient, apache, authorizing, ottla

from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla_testing.interop.checks import Check, Failed

RELEASE = "4.3"
USER, PASSWORD = "eve", "eve-secret"
LISTENER = "SASL_PLAINTEXT"
EACH_RIGHT = 40  # calls between two changes of the user's rights
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
OPERATIONS = {
    TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    GROUP: (3, 6, 8, 10, 11),
    CLUSTER: (4, 5, 7, 8, 9, 10, 11, 12),
    TRANSACTIONAL_ID: (4, 8),
}
DENY, ALLOW = 2, 3
Right = tuple[int, str, int, int, int]  # type and name of the resource, kind of pattern, operation, permission


class LoggedIn(RawClient):
    """A connection of the user."""

    def _connect(self) -> None:
        if self._socket is None:
            super()._connect()
            for request, version in (
                (SaslHandshakeRequest(mechanism="PLAIN"), 1),
                (SaslAuthenticateRequest(auth_bytes=f"\0{USER}\0{PASSWORD}".encode()), 0),
            ):
                if self.call(request, version).error_code:
                    raise Failed("the user cannot log in")


class Denied(Run):
    """A run whose calls are the user's."""

    def __init__(self, pair: Pair, seed: int, ports: tuple[int, int]) -> None:
        super().__init__(pair, seed)
        for eyes, port in zip(self.eyes, ports, strict=True):
            eyes.other_port = port
        self._chooser = Random(seed)
        self._users = [LoggedIn(port) for port in ports]
        self._rights: set[Right] = set()
        self._is_begun = False

    def begin(self) -> dict[int, tuple[int, int]]:
        ranges = super().begin()
        self._is_begun = True
        return ranges

    def send_request(self, call: Call) -> tuple[Any, Any]:
        if not self._is_begun:
            return super().send_request(call)
        found = []
        for user, eyes in zip(self._users, self.eyes, strict=True):
            try:
                found.append(eyes.seen(user.call(eyes.sent(call.request), call.version)))
            except (ConnectionError, TimeoutError) as error:
                found.append(f"no response: {type(error).__name__}")
        return found[0], found[1]

    def change_rights(self, world: World) -> None:
        """Gives the user a right, or takes one away, on both sides."""
        chooser = self._chooser
        if self._rights and chooser.random() < 0.4:
            right = chooser.choice(sorted(self._rights))
            self._rights.remove(right)
            request: Any = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**_filter(right))])
        else:
            kind = chooser.choice(list(OPERATIONS))
            names = {TOPIC: [*world.topics, "*"], GROUP: ["g0", "g1", "*"], CLUSTER: ["kafka-cluster"]}
            name = chooser.choice(names.get(kind, ["t1", "*"]))
            pattern = LITERAL
            if kind != CLUSTER and name != "*" and chooser.random() < 0.2:
                name, pattern = name[:1], PREFIXED
            permission = DENY if chooser.random() < 0.2 else ALLOW
            right = (kind, name, pattern, chooser.choice(OPERATIONS[kind]), permission)
            self._rights.add(right)
            request = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**_creation(right))])
        for side in (self.pair.theirs, self.pair.ours):
            response = side.client.call(request, 2)
            results = response.results if isinstance(request, CreateAclsRequest) else response.filter_results
            if any(one.error_code for one in results):
                raise Failed(f"{side.name}: {response}")
        for fence in self.fences:
            fence.wait()


def _creation(right: Right) -> dict[str, Any]:
    kind, name, pattern, operation, permission = right
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": f"User:{USER}",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def _filter(right: Right) -> dict[str, Any]:
    kind, name, pattern, operation, permission = right
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": f"User:{USER}",
        "host_filter": "*",
        "operation": operation,
        "permission_type": permission,
    }


def run() -> str:
    seed = int(os.environ.get("OTTLA_DIFFERENCE_SEED") or secrets.randbelow(1 << 32))
    only = frozenset(filter(None, os.environ.get("OTTLA_DIFFERENCE_APIS", "").split(",")))
    ports = apache_kafka.free_port(), apache_kafka.free_port()
    settings = {
        **SETTINGS,
        **authorizing(RELEASE),
        "sasl.enabled.mechanisms": "PLAIN",
        f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f'{MODULE} required user_{USER}="{PASSWORD}";',
    }
    own_listeners = f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:{ports[1]}"
    with (
        ottla(RELEASE, {**settings, "listeners": own_listeners}) as ours,
        apache(RELEASE, {**settings, "more.listeners": f"{LISTENER}://127.0.0.1:{ports[0]}"}) as theirs,
    ):
        done = Denied(Pair(RELEASE, theirs, ours), seed, ports)
        calls = Calls(Random(seed), done.begin(), only)
        for number in range(CALLS):
            if number % EACH_RIGHT == 0:
                done.change_rights(done.world)
            done.compare(calls.next(done.world))
    return done.report()


CHECKS = [Check("random admin calls of a user with few rights to Kafka 4.3.1 and to ours", run)]
