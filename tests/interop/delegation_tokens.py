"""Delegation tokens (KIP-48): with Apache's own Java clients of three generations, and each response beside that of
Apache Kafka.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from apache_kafka import START_SECONDS, Kafka
from side_by_side import RELEASES as BESIDE
from side_by_side import WITH_ZOOKEEPER, RawClient, both

from ottla.client.net.sasl import Login
from ottla.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest as Create
from ottla.protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest as Describe
from ottla.protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest as Expire
from ottla.protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest as Renew
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla_testing.broker.delegating import CONFIGS, DAY_MS, KEY, MODULE
from ottla_testing.interop.checks import Check, Failed, broker, jars, java

RELEASES = ("2.8.2", "4.3.1", "4.4.0")
STEPS = ("create", "describe", "renew", "SCRAM-SHA-256", "SCRAM-SHA-512", "another user", "another type", "unknown")
STEPS += ("by token", "expire", "after")
PATIENCE_SECONDS = 240


def run_client(release: str) -> str:
    """Runs all steps with the client of a release."""
    folder = jars(f"kafka-clients-{release}", [f"org.apache.kafka:kafka-clients:{release}"])
    configs = {**CONFIGS, "listeners": "SECURED://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0"}
    overrides = [word for name, text in configs.items() for word in ("--override", f"{name}={text}")]
    with broker(*overrides) as address:
        command = java(folder, Path(__file__).with_name("Tokens.java"), address)
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    passed = tuple(line.removeprefix("ok ") for line in done.stdout.splitlines() if line.startswith("ok "))
    if done.returncode or passed != STEPS:
        raise Failed(f"{done.stdout}{done.stderr[:3000]}")
    return f"{len(passed)} steps: {', '.join(passed)}"


# Beside Apache Kafka

LOGIN = f'{MODULE} required username="kafka" password="p" user_kafka="p" user_ann="p" user_bob="p" user_cat="p";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MODULES = {"PLAIN": LOGIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}
NOT_FOUND = 62
NEAR_MS = 120_000
"""Times of both are compared to within this, relative to the present."""


def settings_of(release: str) -> dict[str, str]:
    """Returns the settings of both. A controller of Kafka refuses requests about tokens, also from its brokers, unless
    its own listener has SASL."""
    listeners = ("plaintext",) if release in WITH_ZOOKEEPER else ("plaintext", "controller")
    protocols = {name.upper(): "SASL_PLAINTEXT" for name in listeners}
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "sasl.enabled.mechanisms": ",".join(MODULES),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "inter.broker.listener.name": "PLAINTEXT",
        **{
            f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config": login
            for name in listeners
            for mechanism, login in MODULES.items()
        },
        "delegation.token.secret.key": KEY,
        "connection.failed.authentication.delay.ms": "0",
    }


class World:
    """One side, with its clients by user and its tokens in the order of their issue."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: dict[str, RawClient] = {}
        self.tokens: list[tuple[str, bytes]] = []

    def client(self, user: str) -> RawClient:
        """Returns the client of a user, or of a token by its number: `#0`."""
        if user not in self.clients:
            self.clients[user] = RawClient(self.port)
            code, _ = self.log_in(user, self.clients[user])
            assert code == 0, user
        return self.clients[user]

    def log_in(self, user: str, client: RawClient, mechanism: str = "SCRAM-SHA-256") -> tuple[int, int]:
        """Returns the code and the lifetime of the session."""
        login = Login("PLAIN", user, "p")
        if user.startswith("#"):
            token_id, secret = self.tokens[int(user[1:])]
            login = Login(mechanism, token_id, base64.b64encode(secret).decode(), by_token=True)
        client.call(SaslHandshakeRequest(mechanism=login.mechanism), 1)
        tokens = login.tokens()
        sent = next(tokens)
        while True:
            response = client.call(SaslAuthenticateRequest(auth_bytes=sent), 1)
            if response.error_code:
                return response.error_code, 0
            try:
                sent = tokens.send(bytes(response.auth_bytes))
            except StopIteration:
                return 0, rounded(response.session_lifetime_ms)

    def secret(self, number: int) -> bytes:
        """Returns the secret of a token; that of no token for -1."""
        return self.tokens[number][1] if number >= 0 else b"of no token"


def rounded(ms: int) -> int:
    return round(ms / NEAR_MS)


def since_now(ms: int) -> int:
    """Returns a time relative to the present, rounded; 0, -1 and other times of refusals as they are."""
    return rounded(ms - int(time.time() * 1000)) if ms > DAY_MS else ms


def parts(principals: str) -> list[tuple[str, str]]:
    return [(kind, name) for kind, _, name in (one.partition(":") for one in principals.split())]


class Step(NamedTuple):
    """A call on both sides; `run` returns what is compared."""

    name: str
    run: Callable[[World], Any]


def create(user: str, renewers: str = "", owner: str = "", life_ms: int = -1, version: int = 2) -> Step:
    kind, _, name = owner.partition(":")

    def run(world: World) -> Any:
        request = Create(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[Create.CreatableRenewers(principal_type=k, principal_name=n) for k, n in parts(renewers)],
            max_lifetime_ms=life_ms,
        )
        made = world.client(user).call(request, version)
        if not made.error_code:
            world.tokens.append((made.token_id, bytes(made.hmac)))
        times = made.issue_timestamp_ms, made.expiry_timestamp_ms, made.max_timestamp_ms
        requester = made.token_requester_principal_type, made.token_requester_principal_name
        facts = made.error_code, made.principal_type, made.principal_name, requester, len(made.token_id), len(made.hmac)
        return facts, tuple(map(since_now, times))

    return Step(f"{user} creates {renewers} {owner} {life_ms} v{version}", run)


def renew(user: str, number: int, period_ms: int) -> Step:
    def run(world: World) -> Any:
        response = world.client(user).call(Renew(hmac=world.secret(number), renew_period_ms=period_ms), 2)
        return response.error_code, since_now(response.expiry_timestamp_ms)

    return Step(f"{user} renews {number} for {period_ms}", run)


def expire(user: str, number: int, period_ms: int) -> Step:
    def run(world: World) -> Any:
        response = world.client(user).call(Expire(hmac=world.secret(number), expiry_time_period_ms=period_ms), 2)
        return response.error_code, since_now(response.expiry_timestamp_ms)

    return Step(f"{user} expires {number} in {period_ms}", run)


def describe(user: str, owners: str | None = None, version: int = 2) -> Step:
    def run(world: World) -> Any:
        wanted = None
        if owners is not None:
            make = Describe.DescribeDelegationTokenOwner
            wanted = [make(principal_type=kind, principal_name=name) for kind, name in parts(owners)]
        response = world.client(user).call(Describe(owners=wanted), version)
        numbers = {token_id: number for number, (token_id, _) in enumerate(world.tokens)}
        found = []
        for token in response.tokens:
            number = numbers[token.token_id]
            times = token.issue_timestamp, token.expiry_timestamp, token.max_timestamp
            renewers = [f"{one.principal_type}:{one.principal_name}" for one in token.renewers]
            requester = token.token_requester_principal_type, token.token_requester_principal_name
            is_secret = bytes(token.hmac) == world.tokens[number][1]
            facts = number, token.principal_type, token.principal_name, requester, renewers, is_secret
            found.append((facts, tuple(map(since_now, times))))
        return response.error_code, sorted(found)

    return Step(f"{user} describes {owners} v{version}", run)


def log_in(number: int, mechanism: str) -> Step:
    def run(world: World) -> Any:
        client = RawClient(world.port)
        try:
            return world.log_in(f"#{number}", client, mechanism)
        finally:
            client.close()

    return Step(f"login by {number} with {mechanism}", run)


def pause() -> Step:
    return Step("a pause", lambda world: time.sleep(0.1))


def steps_of(release: str) -> list[Step]:
    """Returns the script of a release."""
    steps = [create("ann", "User:bob User:cat"), create("ann", "Group:x"), create("bob", life_ms=3_600_000, version=1)]
    if release not in WITH_ZOOKEEPER:
        steps += [create("ann", "User:bob", owner="User:cat", version=3), describe("cat", version=3)]
        steps += [renew("ann", 2, -1), expire("ann", 2, -1), renew("cat", 2, 240_000)]
    steps += [describe("ann", owners) for owners in (None, "", "User:ann", "User:bob User:dan", "Group:ann")]
    periods = [-1, 240_000, 3 * DAY_MS, 30 * DAY_MS]
    periods += [] if release in WITH_ZOOKEEPER else [0]  # with ZooKeeper it ends the token at once
    steps += [renew(user, 0, ms) for user in ("ann", "bob") for ms in periods]
    steps += [renew("kafka", 0, -1), renew("ann", -1, -1), expire("ann", -1, -1), expire("kafka", 0, -1)]
    steps += [log_in(0, mechanism) for mechanism in tuple(MODULES)[1:]]
    steps += [create("#0"), renew("#0", 0, -1), expire("#0", 0, -1), describe("#0")]
    steps += [expire("bob", 0, ms) for ms in (240_000, 30 * DAY_MS)]
    steps += [expire("ann", 1, -1), expire("bob", 1, 0), pause(), renew("bob", 1, -1), renew("ann", 1, -1)]
    steps += [log_in(1, "SCRAM-SHA-256"), expire("bob", 1, 5), expire("ann", 1, 5), expire("ann", 1, -1)]
    steps += [expire("bob", 1, -1), describe("kafka"), expire("ann", 0, -1), expire("ann", 0, -1)]
    steps += [describe("ann"), log_in(0, "SCRAM-SHA-512")]
    # The broker of Kafka has the effect of a step before the next one begins.
    return [one for step in steps for one in ((step, describe("kafka")) if "expires" in step.name else (step,))]


def run_beside(release: str) -> str:
    """Compares each response. Kafka's controller changes tokens before its broker has them: a call is repeated there
    for a while until it has the same result."""
    differences = []
    with both(release, authorizer=False, **settings_of(release)) as pair:
        theirs, ours = World(pair.theirs.client.port), World(pair.ours.client.port)
        steps = steps_of(release)
        for step in steps:
            expected = step.run(ours)
            end = time.monotonic() + 3
            while (found := step.run(theirs)) != expected and time.monotonic() < end and "creates" not in step.name:
                time.sleep(0.1)
            if found != expected:
                differences.append(f"{step.name}\n  Kafka {found}\n  ours  {expected}")
    if differences:
        raise Failed(f"{len(differences)} of {len(steps)} calls differ:\n" + "\n".join(differences))
    return f"{len(steps)} calls, as with Apache Kafka"


# In a directory

IN_DIRECTORY = ("3.9", "4.3", "4.4")
SERVE = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0"]


@contextmanager
def ours_on(folder: Path, release: str) -> Iterator[int]:
    """Runs `ottla serve` on a directory; yields its port."""
    command = [*SERVE, "--data-dir", str(folder), "--release", release]
    for name, text in settings_of(release).items():
        if "controller" not in name:
            command += ["--override", f"{name}={text.replace(',CONTROLLER:SASL_PLAINTEXT', '')}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        words = process.stdout.readline().split()
        if words[:3] != ["ottla", "ready", "on"]:
            raise Failed(process.stderr.read()[-1000:])
        try:
            yield int(words[3].rpartition(":")[2])
        finally:
            process.terminate()


def seen(world: World, port: int) -> Any:
    """Returns the tokens as a broker on another port describes them, after logins by all of them."""
    world.port = port
    world.clients.clear()
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            logins = [log_in(number, mechanism).run(world) for number in (0, 2) for mechanism in tuple(MODULES)[1:]]
            return describe("kafka", version=3).run(world), logins
        except OSError:  # Kafka listens before it serves
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def numbers_of(described: Any) -> list[int]:
    """Returns the numbers of described tokens."""
    return [facts[0] for facts, _ in described[1]]


def run_in_directory(release: str) -> str:
    """Tokens that Kafka issued are served by our broker on its directory, and those of ours by Kafka again."""
    kafka = Kafka(release, None, 1, **settings_of(release))
    try:
        world = World(kafka.port)
        steps = [create("ann", "User:bob", version=3), create("bob"), create("ann", owner="User:cat", version=3)]
        for step in [*steps, describe("ann"), renew("bob", 0, 30 * DAY_MS), expire("bob", 1, -1)]:
            end = time.monotonic() + START_SECONDS
            while True:
                try:
                    result = step.run(world)
                except OSError:
                    result = None
                if result is not None and result[0] != NOT_FOUND:
                    break
                if time.monotonic() > end:
                    raise Failed(f"{step.name}: {result}")
                time.sleep(0.2)
        end = time.monotonic() + START_SECONDS
        while numbers_of(describe("kafka").run(world)) != [0, 2]:  # its broker takes in what its controller did
            if time.monotonic() > end:
                raise Failed("Kafka still has the token that was removed")
            time.sleep(0.2)
        theirs = seen(world, kafka.port)
        kafka.kill()
        with ours_on(kafka.log_dirs[0], release) as port:
            ours = seen(world, port)
            if ours != theirs:
                raise Failed(f"in our broker: {ours}\n  in Kafka: {theirs}")
            create("cat", "User:ann", version=3).run(world)
            renew("cat", 2, 240_000).run(world)
            changed = seen(world, port)
        kafka.start()
        again = seen(world, kafka.port)
        if again != changed:
            raise Failed(f"in Kafka again: {again}\n  in our broker: {changed}")
    finally:
        kafka.stop()
    return f"{len(theirs[0][1])} tokens of Kafka in our broker, {len(changed[0][1])} of ours in Kafka, with logins"


CHECKS = [Check(f"delegation tokens, Java {release}", partial(run_client, release)) for release in RELEASES]
CHECKS += [Check(f"delegation tokens, release {release}", partial(run_beside, release)) for release in BESIDE]
CHECKS += [Check(f"delegation tokens in a directory, {r}", partial(run_in_directory, r)) for r in IN_DIRECTORY]
