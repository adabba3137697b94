"""Clients that log in: the Java clients of four releases, franz-go and kafkajs, with each mechanism over each protocol,
with right and wrong passwords or tokens, and with a broker that they do not trust; while its certificate is replaced,
while it restarts, and with sessions that are renewed during transactions (KIP-368).
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.security.oauthbearer import LOGIN_MODULE, MECHANISM, unsecured_token
from ottla_testing.certificates import Authority
from ottla_testing.interop.checks import OUT, Check, Failed, Missing, jars, java, program
from ottla_testing.old_environment import NODE_MODULES, install_kafkajs

HERE = Path(__file__).parent
RELEASES = ("2.8.2", "3.9.1", "4.3.1", "4.4.0")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, MECHANISM)
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
LISTENERS = ("PLAINTEXT", *PROTOCOLS)
USER, PASSWORD, SCOPE = "ann", 'one, "two"; =3', "kafka"
JACKSON = "2.19.0"  # Java clients read tokens with it, and do not bring it along
PATIENCE_SECONDS = 300
ROUNDS, RECORDS, CERTIFICATE_SECONDS = 3, 2000, 0.2
RESTART_SECONDS = 2.0
SESSION_MS, TRANSACTION_MS = 2500, 4000
"""Kafka refuses a renewal within a second, and franz-go renews its sessions a second before their end."""
METRICS = "kafka_server_socket_server_metrics_"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Server:
    """`ottla serve` with a file of configs; its data and its ports stay over restarts."""

    def __init__(self, file: Path, listeners: Sequence[str] = LISTENERS) -> None:
        self.addresses: dict[str, str] = {}
        self._listeners = listeners
        self.control = ""
        self._command = [sys.executable, "-m", "ottla.tools", "serve", "--config", str(file)]
        self._command += ["--data-dir", str(file.parent / "data"), "--control", "127.0.0.1:0"]
        self._log = OUT / "secured.log"
        self._log.unlink(missing_ok=True)

    def start(self) -> None:
        """Returns when the broker accepts connections. Raises Failed."""
        command = list(self._command)
        if self.addresses:
            listeners = ",".join(f"{name}://{address}" for name, address in self.addresses.items())
            command += ["--override", f"listeners={listeners}"]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline().split() for _ in (*self._listeners, "control")]
        if not all(lines):
            raise Failed(f"the broker did not start; see {self._log}")
        self.addresses = {name: words[-1] for name, words in zip(self._listeners, lines, strict=False)}
        self.control = lines[-1][-1]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the process; SIGKILL is a crash."""
        self._process.send_signal(how)
        self._process.communicate()

    def metric(self, name: str) -> int:
        """Returns the sum of a counter of connections over the listeners."""
        with urllib.request.urlopen(f"{self.control}/metrics") as page:
            text = page.read().decode()
        return sum(
            int(float(line.split()[-1])) for line in text.splitlines() if line.startswith(f"{METRICS}{name}_total{{")
        )


class Secured(NamedTuple):
    """A broker that runs: what clients trust and show."""

    broker: Server
    authority: Authority
    server: Path
    own: Path
    stranger: Path

    @property
    def trusted(self) -> Path:
        return self.authority.trusted

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each listener."""
        return self.broker.addresses


@contextmanager
def secured(**more: str) -> Iterator[Secured]:
    """Runs a broker with a listener for each protocol, and the user for each mechanism; `more` are configs."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server, own = authority.issue("server"), authority.issue("ann", common_name="ann")
        authority.issue_pkcs12("ann", common_name="ann")
        stranger = Authority(Path(folder) / "stranger").trusted
        quoted = PASSWORD.replace('"', r"\"")
        configs = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **{
                f"listener.name.{name.lower()}.plain.sasl.jaas.config": f'{MODULE} required user_{USER}="{quoted}";'
                for name in PROTOCOLS[1:]
            },
            **{
                f"listener.name.{name.lower()}.oauthbearer.sasl.jaas.config": (
                    f'{LOGIN_MODULE} required unsecuredValidatorRequiredScope="{SCOPE}";'
                )
                for name in PROTOCOLS[1:]
            },
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.trusted),
            "listener.name.ssl.ssl.client.auth": "required",
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): text for name, text in more.items()},
        }
        file = Path(folder) / "server.properties"
        file.write_text("".join(f"{name}={text}\n".replace("\\", "\\\\") for name, text in configs.items()))
        broker = Server(file)
        broker.start()
        try:
            for mechanism in SCRAM:
                add_user(broker.addresses["PLAINTEXT"], mechanism)
            yield Secured(broker, authority, server, own, stranger)
        finally:
            broker.stop()


def add_user(address: str, mechanism: str) -> None:
    command = [sys.executable, "-m", "ottla.tools", "configs", "--bootstrap-server", address, "--alter"]
    command += ["--entity-type", "users", "--entity-name", USER, "--add-config", f"{mechanism}=[password={PASSWORD}]"]
    subprocess.run(command, check=True, capture_output=True)


def token(scope: str) -> str:
    now_s = int(time.time())
    return unsecured_token({"sub": USER, "iat": now_s, "exp": now_s + 600, "scope": [scope]})


def ways(running: Secured, token_of: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    """Returns name -> (line for the program, outcome). `token_of` returns the field of a token with a scope."""
    found: dict[str, tuple[str, str]] = {}
    for protocol in PROTOCOLS:
        for mechanism in MECHANISMS if protocol.startswith("SASL") else ("",):
            for password, outcome in ((PASSWORD, "ok"), ("guess", "refused")) if mechanism else (("", "ok"),):
                name = f"{protocol}-{mechanism}-{outcome}"
                if mechanism == MECHANISM:
                    password = token_of(SCOPE if outcome == "ok" else "other")
                fields = (name, running.addresses[protocol], protocol, mechanism, USER, password)
                found[name] = "\t".join(fields), outcome
    return found


def java_command(release: str, trusted: Path, own: Path) -> list[str]:
    artifacts = [f"org.apache.kafka:kafka-clients:{release}", f"com.fasterxml.jackson.core:jackson-databind:{JACKSON}"]
    folder = jars(f"secured-{release}", artifacts)
    # 2.8.2 refuses a key in PEM that has no password.
    own = own.with_suffix(".p12") if release.startswith("2.") else own
    return java(folder, HERE / "Secured.java", str(trusted), str(own))


def franz_command(trusted: Path, own: Path) -> list[str]:
    folder = OUT / "franz-go-secured"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("main.go", "go.mod", "go.sum"):
        shutil.copyfile(HERE / "franz_secured" / name, folder / name)
    done = subprocess.run([program("go"), "build", "-o", "secured", "."], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"franz-go: {done.stderr.strip()[-300:]}")
    return [str(folder / "secured"), str(trusted), str(own)]


def kafkajs_command(trusted: Path, own: Path) -> list[str]:
    if missing := install_kafkajs():
        raise Missing(f"kafkajs: {missing}")
    return [program("node"), str(HERE / "secured.js"), str(trusted), str(own)]


def outcomes(command: list[str], lines: list[str]) -> dict[str, str]:
    """Returns name -> outcome, as the program prints them."""
    environ = {**os.environ, "NODE_PATH": str(NODE_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=environ)
    if done.returncode:
        raise Failed(done.stderr[-2000:])
    return {name: outcome for name, _, outcome in (line.partition(" ") for line in done.stdout.splitlines())}


def run(
    command: Callable[[Path, Path], list[str]], token_of: Callable[[str], str] = token, refused_token: str = ""
) -> str:
    """`refused_token` is in the error of a client that does not read the broker's errors of tokens."""
    with secured() as running:
        wanted = ways(running, token_of)
        found = outcomes(command(running.trusted, running.own), [line for line, _ in wanted.values()])
        for name, text in found.items():
            if MECHANISM in name and refused_token and refused_token in text:
                found[name] = "refused"
        wrong = {name: found.get(name) for name, (_, outcome) in wanted.items() if found.get(name) != outcome}
        if wrong:
            raise Failed(f"{wrong}")
        untrusting = [line for name, (line, _) in wanted.items() if name in ("SSL--ok", "SASL_SSL-PLAIN-ok")]
        strange = outcomes(command(running.stranger, running.own), untrusting)
        if set(strange.values()) != {"refused"}:
            raise Failed(f"with a broker that is not trusted: {strange}")
    right = sum(outcome == "ok" for _, outcome in wanted.values())
    wrongly = len(wanted) - right
    return f"{right} ways to log in, {wrongly} with a wrong password or scope, {len(strange)} untrusted brokers"


def run_replaced(command: Callable[[Path, Path], list[str]]) -> str:
    """Each way of TLS in turn, while the broker's certificate is another one every `CERTIFICATE_SECONDS`."""
    with secured() as running:
        ended, issued, shown = threading.Event(), [1], set[str]()

        def replace() -> None:
            host, port = running.addresses["SASL_SSL"].split(":")
            while not ended.wait(CERTIFICATE_SECONDS):
                shown.add(ssl.get_server_certificate((host, int(port))))
                os.replace(running.authority.issue("next"), running.server)
                issued[0] += 1

        lines = [
            "\t".join((f"{protocol}-{number}", running.addresses[protocol], protocol, mechanism, USER, PASSWORD))
            for number in range(ROUNDS)
            for protocol, mechanism in (("SSL", ""), ("SASL_SSL", SCRAM[number % 2]))
        ]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            replacing = pool.submit(replace)
            try:
                found = outcomes([*command(running.trusted, running.own), str(RECORDS)], lines)
            finally:
                ended.set()
            replacing.result()
        all_ok(found, lines)
        if len(shown) < issued[0] - 1:
            raise Failed(f"{issued[0]} certificates, of which {len(shown)} were shown")
    return f"{len(lines)} times {RECORDS} records, none lost, while {len(shown)} certificates were in use"


def right_ways(running: Secured, token_of: Callable[[str], str]) -> list[str]:
    """Returns the lines for the program of all that are accepted."""
    return [line for line, outcome in ways(running, token_of).values() if outcome == "ok"]


def all_ok(found: dict[str, str], lines: list[str]) -> None:
    """Raises Failed unless each way has ended well."""
    wrong = {name: outcome for name, outcome in found.items() if outcome != "ok"}
    if wrong or len(found) != len(lines):
        raise Failed(f"{len(found)} of {len(lines)} ways ended; {wrong}")


def over_restarts(broker: Server, command: list[str], lines: list[str]) -> str:
    """Each way in turn, while the broker ends every `RESTART_SECONDS`: cleanly, the next time by SIGKILL."""
    ended, restarts = threading.Event(), [0]

    def restart() -> None:
        while not ended.wait(RESTART_SECONDS):
            broker.stop(signal.SIGKILL if restarts[0] % 2 else signal.SIGTERM)
            broker.start()
            restarts[0] += 1

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        restarting = pool.submit(restart)
        try:
            found = outcomes([*command, str(RECORDS)], lines)
        finally:
            ended.set()
        restarting.result()
    all_ok(found, lines)
    if restarts[0] < len(lines):
        raise Failed(f"{restarts[0]} restarts are less than one for each of {len(lines)} ways")
    return f"{len(lines)} ways with {RECORDS} records, none lost over {restarts[0]} restarts"


def run_restarted(command: Callable[[Path, Path], list[str]], token_of: Callable[[str], str] = token) -> str:
    with secured() as running:
        return over_restarts(running.broker, command(running.trusted, running.own), right_ways(running, token_of))


def with_renewals(broker: Server, command: list[str], lines: list[str]) -> str:
    """Each way with SASL in turn, with transactions that are longer than sessions."""
    found = outcomes([*command, "1", str(TRANSACTION_MS)], lines)
    all_ok(found, lines)
    renewed, refused, ended = (
        broker.metric(name)
        for name in ("successful_reauthentication", "failed_reauthentication", "expired_connections_killed")
    )
    if renewed < 2 * len(lines) or refused:
        raise Failed(f"{renewed} renewals, of which {refused} were refused, {ended} sessions ended")
    return f"{len(lines)} ways with a committed and an aborted transaction, {renewed} renewals, {ended} sessions ended"


def run_renewed(command: Callable[[Path, Path], list[str]], token_of: Callable[[str], str] = token) -> str:
    with secured(connections_max_reauth_ms=str(SESSION_MS)) as running:
        lines = [line for line in right_ways(running, token_of) if "SASL" in line]
        return with_renewals(running.broker, command(running.trusted, running.own), lines)


CHECKS = [
    *(Check(f"secured: Java {release}", partial(run, partial(java_command, release), str)) for release in RELEASES),
    Check("secured: franz-go", partial(run, franz_command, refused_token="unexpected data in oauth response")),
    Check("secured: kafkajs", partial(run, kafkajs_command, refused_token="Closed connection")),
    *(
        Check(f"secured: Java {release}, certificates replaced", partial(run_replaced, partial(java_command, release)))
        for release in RELEASES
    ),
    Check("secured: franz-go, certificates replaced", partial(run_replaced, franz_command)),
    Check("secured: kafkajs, certificates replaced", partial(run_replaced, kafkajs_command)),
    *(
        Check(f"secured: {name}, {subject}", partial(checked, command, token_of))
        for subject, checked in (("restarts", run_restarted), ("sessions renewed in transactions", run_renewed))
        for name, command, token_of in (
            *((f"Java {release}", partial(java_command, release), str) for release in RELEASES),
            ("franz-go", franz_command, token),
            ("kafkajs", kafkajs_command, token),
        )
    ),
]
