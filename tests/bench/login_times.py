"""Measures how long the broker takes to refuse a login: of an unknown name, and of a known one with a wrong password.

    .venv/bin/python tests/bench/login_times.py [SAMPLES]

Names could be found by a difference. Prints medians and quartiles of the exchange alone, and of each token over a
connection, without the delay of failures. Both kinds take turns, so that load on the machine is that of both.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ottla.broker.logs import quieten_thread
from ottla.broker.security.sasl.mechanisms import Exchange, PlainExchange, SaslError, ScramExchange
from ottla.broker.security.scram import Mechanism
from ottla.client.net.sasl import PLAIN
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.security.scram import HASHES
from ottla_testing.broker.delegating import CONFIGS, MODULE, create, logged_in
from ottla_testing.broker.harness import Broker, running

KNOWN, UNKNOWN = "known", "unknown"
NAMES = 50
DIGEST_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
NO_DELAY = {"connection.failed.authentication.delay.ms": "0"}

Times = dict[int, dict[str, list[float]]]


class Attempt(NamedTuple):
    """One login that fails."""

    kind: str
    mechanism: str
    name: str
    by_token: bool

    def first(self) -> bytes:
        """Returns the first token; that of PLAIN has all."""
        if self.mechanism == PLAIN:
            return f"\0{self.name}\0{secrets.token_hex(8)}".encode()
        return f"n,,n={self.name},r={secrets.token_hex(9)}{',tokenauth=true' if self.by_token else ''}".encode()

    def final(self, response: bytes) -> bytes:
        """Returns the second token, with a random proof."""
        nonce = response.decode().partition(",")[0]
        proof = base64.b64encode(secrets.token_bytes(DIGEST_BYTES[self.mechanism])).decode()
        return f"c=biws,{nonce},p={proof}".encode()


class Case(NamedTuple):
    """A mechanism, with the names or the ids of delegation tokens that there are."""

    mechanism: str
    names: list[str]
    by_token: bool = False

    @property
    def title(self) -> str:
        return f"{self.mechanism} by delegation token" if self.by_token else self.mechanism

    def attempts(self, samples: int) -> Iterator[Attempt]:
        """Yields as many of both kinds, with names of one length."""
        for number in range(samples):
            known = self.names[number % len(self.names)]
            unknown = "".join(random.sample(known, len(known)))
            both = [Attempt(KNOWN, self.mechanism, known, self.by_token)]
            both.append(Attempt(UNKNOWN, self.mechanism, unknown, self.by_token))
            random.shuffle(both)
            yield from both

    def exchange(self, broker: Broker, passwords: dict[str, str]) -> Exchange:
        """Returns the broker's side of a login."""
        if self.mechanism == PLAIN:
            return PlainExchange(passwords)
        state = broker.state
        return ScramExchange(Mechanism[self.mechanism.replace("-", "_")], state.scram, state.tokens)


def measure_exchange(case: Case, broker: Broker, passwords: dict[str, str], samples: int) -> None:
    """Measures the calls of `respond`."""
    times: Times = defaultdict(lambda: defaultdict(list))
    for attempt in case.attempts(samples):
        exchange, token, step = case.exchange(broker, passwords), attempt.first(), 1
        while True:
            begun_ns = time.perf_counter_ns()
            try:
                response = exchange.respond(token, 0)
            except SaslError:
                response = b""
            times[step][attempt.kind].append((time.perf_counter_ns() - begun_ns) / 1000)
            if not response:
                break
            token, step = attempt.final(response), step + 1
    show(f"{case.title}, exchange", times)


async def measure_connection(case: Case, broker: Broker, samples: int) -> None:
    """Measures each token from its request to the response."""
    times: Times = defaultdict(lambda: defaultdict(list))
    for attempt in case.attempts(samples):
        client = await broker.client(1)
        await client.call(SaslHandshakeRequest(mechanism=case.mechanism), 1)
        token, step = attempt.first(), 1
        while True:
            begun_ns = time.perf_counter_ns()
            response: Any = await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
            times[step][attempt.kind].append((time.perf_counter_ns() - begun_ns) / 1000)
            if response.error_code:
                break
            token, step = attempt.final(bytes(response.auth_bytes)), step + 1
        client.close()
    show(f"{case.title}, connection", times)


def show(title: str, times: Times) -> None:
    """Prints a line for each token."""
    for step, found in sorted(times.items()):
        texts: list[str] = []
        for kind in (KNOWN, UNKNOWN):
            first, median, third = statistics.quantiles(found[kind], n=4)
            texts.append(f"{kind} {median:.1f} us ({first:.1f} to {third:.1f})")
        print(f"{title}, token {step}: " + "; ".join(texts), flush=True)


async def main(samples: int) -> None:
    quieten_thread()
    passwords = {secrets.token_hex(6): secrets.token_hex(8) for _ in range(NAMES)}
    users = " ".join(f'user_{name}="{password}"' for name, password in {**passwords, "ann": "p"}.items())
    plain = {"listener.name.secured.plain.sasl.jaas.config": f"{MODULE} required {users};"}
    with tempfile.TemporaryDirectory() as folder:
        async with running(Path(folder), overrides=CONFIGS | plain | NO_DELAY) as broker:
            broker.state.scram.ensure(passwords, 0)
            tokens = broker.state.tokens
            ids = [(await create(await logged_in(broker, "ann"))).token_id for _ in range(NAMES)]
            for token in filter(None, map(tokens.find, ids)):
                for mechanism in Mechanism:  # which the first login takes milliseconds for
                    tokens.credential(token, mechanism)
            cases = [Case(mechanism, list(passwords)) for mechanism in (PLAIN, *HASHES)]
            for case in [*cases, *(Case(mechanism, ids, True) for mechanism in HASHES)]:
                gc.collect()
                measure_exchange(case, broker, passwords, samples)
                await measure_connection(case, broker, samples // 10)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
