"""Clients that log in: the Java clients of four releases, franz-go and kafkajs, with each mechanism over each protocol,
with right and wrong passwords or tokens, with a broker that they do not trust, and while its certificate is replaced.
"""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
USER, PASSWORD, SCOPE = "ann", 'one, "two"; =3', "kafka"
JACKSON = "2.19.0"  # Java clients read tokens with it, and do not bring it along
PATIENCE_SECONDS = 300
ROUNDS, RECORDS, CERTIFICATE_SECONDS = 3, 2000, 0.2
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured(NamedTuple):
    """A broker that runs: the address of each protocol, and what clients trust and show."""

    addresses: dict[str, str]
    authority: Authority
    server: Path
    own: Path
    stranger: Path

    @property
    def trusted(self) -> Path:
        return self.authority.trusted


@contextmanager
def secured() -> Iterator[Secured]:
    """Runs a broker with a listener for each protocol, and the user for each mechanism."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        server, own = authority.issue("server"), authority.issue("ann", common_name="ann")
        authority.issue_pkcs12("ann", common_name="ann")
        stranger = Authority(Path(folder) / "stranger").trusted
        quoted = PASSWORD.replace('"', r"\"")
        configs = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", *PROTOCOLS)),
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
        }
        file = Path(folder) / "server.properties"
        file.write_text("".join(f"{name}={text}\n".replace("\\", "\\\\") for name, text in configs.items()))
        with serving(file) as addresses:
            for mechanism in SCRAM:
                add_user(addresses["PLAINTEXT"], mechanism)
            yield Secured(addresses, authority, server, own, stranger)


@contextmanager
def serving(file: Path) -> Iterator[dict[str, str]]:
    """Runs `ottla serve` with a file of configs; yields the address of each listener."""
    with tempfile.TemporaryDirectory() as data, (OUT / "secured.log").open("w") as log:
        command = [sys.executable, "-m", "ottla.tools", "serve", "--config", str(file), "--data-dir", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            found = {}
            for name in ("PLAINTEXT", *PROTOCOLS):
                words = process.stdout.readline().split()
                if not words:
                    raise Failed(f"the broker did not start; see {log.name}")
                found[name] = words[-1]
            try:
                yield found
            finally:
                process.terminate()


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
        wrong = {name: outcome for name, outcome in found.items() if outcome != "ok"}
        if wrong or len(found) != len(lines):
            raise Failed(f"{len(found)} of {len(lines)} ways ended; {wrong}")
        if len(shown) < issued[0] - 1:
            raise Failed(f"{issued[0]} certificates, of which {len(shown)} were shown")
    return f"{len(lines)} times {RECORDS} records, none lost, while {len(shown)} certificates were in use"


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
]
