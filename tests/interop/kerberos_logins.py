"""GSSAPI with a KDC of this machine: each token beside Apache Kafka, our client at Apache Kafka, and at our broker the
Java clients, franz-go, kafka-python and aiokafka; with right and with wrong tickets, over restarts, and with sessions
that are renewed during transactions.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from apache_kafka import RELEASES, Kafka, free_port
from own_logins import exchange, refused
from secured import (
    SESSION_MS,
    TRANSACTION_MS,
    Server,
    franz_command,
    java_command,
    outcomes,
    over_restarts,
    with_renewals,
)
from side_by_side import RawClient, frame

from ottla.client import Admin, ClientError
from ottla.client.admin.admin import NewTopic, checked
from ottla.client.net.errors import AuthenticationError, KafkaError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.security.kerberos import CHOICE, LOGIN_MODULE, MECHANISM
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.interop.checks import OUT, Check, Failed, Missing, jars, java
from ottla_testing.kdc import REALM, Kdc, missing_programs

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
LISTENERS = ("PLAINTEXT", *PROTOCOLS)
BROKER, OTHER = "kafka/localhost", "http/localhost"
CLIENTS = ("ann", "app/one", "web/one", "bad/one", "a/b/c")
RULES = (
    f"RULE:[1:$1@$0](^a.*@{REALM})s/@.*//",
    "RULE:[2:$1;$2](app;.*)s/;.*//U",
    "RULE:[2:$1$9](.*)",  # the principals that it is tried for have no such part
    "DEFAULT",
)
LIBRARIES = ("kafka-python", "aiokafka")
JAVA = ("2.8.2", "3.9.1", "4.3.1", "4.4.0")
BESIDE = "4.3"
OLDEST, LAST = "0.9.0.1", "3.9"
"""The first client with GSSAPI, which has no SaslHandshake, and Kafka's last release that serves it."""
PATIENCE_SECONDS = 120
HERE = Path(__file__).parent
REAUTH_MS = 60_000
RECORDS = 900
RESTARTS = {RECORDS // 3: signal.SIGTERM, 2 * RECORDS // 3: signal.SIGKILL}
"""The record before which the broker ends, and how."""
LEAST_BETWEEN_S = 1.1
"""Kafka refuses a renewal within a second."""
METADATA = MetadataRequest(topics=[], allow_auto_topic_creation=False)


class World(NamedTuple):
    """The KDC, the keytab of the brokers' service, and that of all clients."""

    kdc: Kdc
    broker: Path
    clients: Path


@contextmanager
def world() -> Iterator[World]:
    """Runs a KDC, which this process and its children see. Raises Missing."""
    if missing := missing_programs():
        raise Missing(f"no {', '.join(missing)} here; `make system-packages` installs them")
    try:
        importlib.import_module("gssapi")  # an extra that make check does without
    except (ImportError, OSError) as error:
        raise Missing(f"no gssapi here: pip install 'ottla[kerberos]' ({error})") from None
    with tempfile.TemporaryDirectory() as name:
        kdc = Kdc(Path(name) / "kdc")
        before = dict(os.environ)
        try:
            os.environ.update(kdc.environ)
            os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={kdc.config}"
            kdc.keytab(OTHER)
            yield World(kdc, kdc.keytab(BROKER), kdc.keytab(*CLIENTS))
        finally:
            os.environ.clear()
            os.environ.update(before)
            kdc.stop()


def configs(made: World, authority: Authority) -> dict[str, str]:
    """Returns the settings of a broker's two listeners."""
    login = f'{LOGIN_MODULE} required useKeyTab=true storeKey=true keyTab="{made.broker}" principal="{BROKER}@{REALM}";'
    return {
        "sasl.enabled.mechanisms": MECHANISM,
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": login for name in PROTOCOLS},
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": ",".join(RULES),
        "connections.max.reauth.ms": str(REAUTH_MS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("server")),
    }


class Kerberized(Kafka):
    """Apache Kafka with the two listeners."""

    def __init__(self, release: str, made: World, authority: Authority) -> None:
        self.ports = {name: free_port() for name in PROTOCOLS}
        listeners = ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items())
        settings: dict[str, Any] = {
            **configs(made, authority),
            "more.listeners": listeners,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(authority.issue_pkcs12("server")),
            "ssl.keystore.password": STORE_PASSWORD,
        }
        super().__init__(release, **settings)


def server_properties(made: World, authority: Authority, more: Mapping[str, str]) -> Path:
    """Writes the configs of a broker with the two listeners, and one without a login."""
    file = authority.folder / "server.properties"
    listeners = {"listeners": ",".join(f"{name}://localhost:0" for name in LISTENERS)}
    settings = {**configs(made, authority), **listeners, "group.initial.rebalance.delay.ms": "0", **more}
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return file


@contextmanager
def serving(made: World, authority: Authority, *more: str) -> Iterator[dict[str, str]]:
    """Runs `ottla serve` with the two listeners, and `more` arguments; yields their addresses by protocol, and that
    without a login."""
    file = server_properties(made, authority, {})
    with tempfile.TemporaryDirectory() as data, (OUT / "kerberos.log").open("w") as log:
        command = [sys.executable, "-m", "ottla.tools", "serve", "--config", str(file), "--data-dir", data, *more]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            found = {name: (process.stdout.readline().split() or [""])[-1] for name in LISTENERS}
            try:
                if not all(found.values()):
                    raise Failed(f"the broker did not start; see {log.name}")
                yield found
            finally:
                process.terminate()


# Each token beside Apache Kafka


class Tickets:
    """Contexts of clients, made by the library itself."""

    def __init__(self, made: World) -> None:
        self._gss: Any = importlib.import_module("gssapi")
        self._world = made
        self._credentials: dict[str, Any] = {}

    def context(self, principal: str = "ann", service: str = "kafka", with_proof: bool = False) -> Any:
        gss = self._gss
        if principal not in self._credentials:
            self._credentials[principal] = gss.Credentials(
                usage="initiate",
                name=gss.Name(f"{principal}@{REALM}", gss.NameType.kerberos_principal),
                store={"client_keytab": str(self._world.clients), "ccache": f"MEMORY:{principal}"},
            )
        proof = gss.RequirementFlag.mutual_authentication if with_proof else 0
        return gss.SecurityContext(
            name=gss.Name(f"{service}@localhost", gss.NameType.hostbased_service),
            creds=self._credentials[principal],
            usage="initiate",
            mech=gss.MechType.kerberos,
            flags=gss.RequirementFlag.integrity | proof,
        )


class Session:
    """A connection in which tokens are sent; what was seen is compared."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(port)
        self.seen: list[Any] = []
        self.is_closed = False

    def handshake(self, version: int = 1) -> None:
        self.seen.append(self.client.call(SaslHandshakeRequest(mechanism=MECHANISM), version).error_code)

    def send(self, token: bytes, is_shown: bool = True) -> bytes:
        """Returns the broker's token; it is compared if it is not `is_shown` by its presence alone."""
        try:
            found = self.client.call(SaslAuthenticateRequest(auth_bytes=token), 2)
        except ConnectionError:
            self.seen.append("closed")
            return b""
        lifetime_ms, response = found.session_lifetime_ms, bytes(found.auth_bytes)
        self.seen.append((found.error_code, found.error_message, response if is_shown else bool(response), lifetime_ms))
        return response

    def begin(self, context: Any) -> Any:
        """Sends a ticket; returns the broker's offer."""
        self.handshake()
        offer = self.send(context.step(), is_shown=False)
        if not context.complete:
            context.step(offer)
            offer = self.send(b"", is_shown=False)
        message = context.unwrap(offer).message
        self.seen.append(message)
        return context

    def log_in(self, context: Any, choice: bytes = CHOICE) -> None:
        self.begin(context)
        self.send(context.wrap(choice, False).message)

    def metadata(self) -> None:
        try:
            self.seen.append(bool(self.client.call(METADATA, 9).brokers))
        except ConnectionError:
            self.seen.append("closed")


Step = Callable[[Session, Tickets], None]


def with_choice(choice: bytes) -> Step:
    def run(session: Session, tickets: Tickets) -> None:
        session.log_in(tickets.context(), choice)
        session.metadata()

    return run


def with_token(token: bytes) -> Step:
    def run(session: Session, tickets: Tickets) -> None:
        session.handshake()
        session.send(token)

    return run


def with_proof(session: Session, tickets: Tickets) -> None:
    session.log_in(tickets.context(with_proof=True))
    session.metadata()


def with_a_token_too_many(session: Session, tickets: Tickets) -> None:
    context = tickets.context(with_proof=True)
    session.handshake()
    session.send(context.step(), is_shown=False)
    session.send(b"x")


def of_another_service(session: Session, tickets: Tickets) -> None:
    session.handshake()
    session.send(tickets.context(service="http").step())


def damaged(session: Session, tickets: Tickets) -> None:
    session.handshake()
    ticket = bytearray(tickets.context().step())
    ticket[-10] ^= 1
    session.send(bytes(ticket))


def with_a_damaged_choice(session: Session, tickets: Tickets) -> None:
    context = session.begin(tickets.context())
    session.send(context.wrap(CHOICE, False).message[:-1] + b"!")


def twice(session: Session, tickets: Tickets) -> None:
    """The second connection with the same ticket is a replay."""
    ticket = tickets.context().step()
    for number in range(2):
        if number:
            session.client.close()
        session.handshake()
        session.send(ticket, is_shown=False)


def without_headers(session: Session, tickets: Tickets) -> None:
    """SaslHandshake v0: the last token has no response, so that the next bytes are those of the next response."""
    context = tickets.context()
    session.handshake(0)
    opened: Any = session.client
    for token in (context.step(), None):
        if token is None:
            token = context.wrap(CHOICE, False).message
            opened._socket.sendall(len(token).to_bytes(4, "big") + token + frame(METADATA, 9, 77))
            size = int.from_bytes(opened._take(4), "big")
            session.seen.append(opened._take(size)[:4])
        else:
            opened._socket.sendall(len(token).to_bytes(4, "big") + token)
            session.seen.append(context.unwrap(opened._take(int.from_bytes(opened._take(4), "big"))).message)


def as_user(principal: str) -> Step:
    """Shows the user of a principal: Kafka names both in the refusal of a renewal by another one."""

    def run(session: Session, tickets: Tickets) -> None:
        session.log_in(tickets.context(principal))
        if principal in ("bad/one", "web/one", "a/b/c"):
            session.metadata()
            return
        time.sleep(LEAST_BETWEEN_S)
        session.log_in(tickets.context("ann" if principal != "ann" else "app/one"))

    return run


def renewed_without_a_user(session: Session, tickets: Tickets) -> None:
    session.log_in(tickets.context())
    time.sleep(LEAST_BETWEEN_S)
    session.log_in(tickets.context("bad/one"))


def renewed(session: Session, tickets: Tickets) -> None:
    session.log_in(tickets.context())
    time.sleep(LEAST_BETWEEN_S)
    session.log_in(tickets.context())
    session.metadata()


STEPS: dict[str, Step] = {
    "a login": with_choice(CHOICE),
    "an authorization id": with_choice(CHOICE + b"ann@" + REALM.encode()),
    "that of a service": with_choice(CHOICE + b"kafka@localhost"),
    "that of another user": with_choice(CHOICE + b"bob@" + REALM.encode()),
    "with proof": with_proof,
    "all protections": with_choice(b"\7\0\0\0"),
    "integrity": with_choice(b"\2\0\1\0"),
    "no protection": with_choice(b"\0\0\0\0"),
    "three bytes": with_choice(b"\1\0\0"),
    "no bytes": with_choice(b""),
    "no token": with_token(b""),
    "another token": with_token(b"\x60ticket"),
    "a long token": with_token(b"\x60" * 400_000),
    "a token too many": with_a_token_too_many,
    "another service": of_another_service,
    "a damaged ticket": damaged,
    "a damaged choice": with_a_damaged_choice,
    "a replay": twice,
    "no headers": without_headers,
    "a renewal": renewed,
    "a renewal without a user": renewed_without_a_user,
    **{f"the user of {principal}": as_user(principal) for principal in CLIENTS},
}


def seen_of(port: int, step: Step, tickets: Tickets) -> list[Any]:
    session = Session(port)
    try:
        step(session, tickets)
    finally:
        session.client.close()
    return session.seen


def beside(release: str) -> str:
    """Compares all steps. Raises Failed, Missing."""
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        kafka = Kerberized(release, made, authority)
        try:
            with serving(made, authority) as addresses:
                ports = [int(addresses[PROTOCOLS[0]].rpartition(":")[2]), kafka.ports[PROTOCOLS[0]]]
                tickets = Tickets(made)
                for name, step in STEPS.items():
                    ours, theirs = (seen_of(port, step, tickets) for port in ports)
                    if ours != theirs:
                        raise Failed(f"{name}: {ours}, and Kafka {theirs}")
        finally:
            kafka.stop()
    return f"{len(STEPS)} exchanges"


# Our client


def keytab_login(made: World, principal: str = "ann") -> dict[str, str]:
    options = f'useKeyTab=true keyTab="{made.clients}" principal="{principal}"'
    return {"sasl.jaas.config": f"{LOGIN_MODULE} required {options};"}


async def own(made: World, addresses: Mapping[str, str], authority: Authority) -> int:
    """Runs our clients; returns the number of those that log in."""
    tickets = made.kdc.tickets("ann", made.clients)
    cache = {"sasl.jaas.config": f'{LOGIN_MODULE} required useTicketCache=true ticketCache="{tickets}";'}
    librdkafka = {"sasl.kerberos.keytab": str(made.clients), "sasl.kerberos.principal": "app/one"}
    count = 0
    for protocol in PROTOCOLS:
        names = {
            "bootstrap.servers": addresses[protocol],
            "security.protocol": protocol,
            "sasl.mechanism": MECHANISM,
            "sasl.kerberos.service.name": "kafka",
            "ssl.ca.location": str(authority.trusted),
        }
        ways = {"keytab": keytab_login(made), "cache": cache, "librdkafka": librdkafka}
        async with Admin.from_config({**names, **cache}) as admin:
            checked(await admin.create_topics([NewTopic(f"{protocol}-{way}", 1) for way in ways]))
        for way, login in ways.items():
            await exchange({**names, **login}, f"{protocol}-{way}")
            count += 1
        code = ErrorCode.SASL_AUTHENTICATION_FAILED.name
        await refused({**names, **cache, "sasl.kerberos.service.name": "http"}, KafkaError, "SASL mechanism GSSAPI")
        await refused({**names, **cache, "sasl.kerberos.service.name": "none"}, KafkaError, "not found in Kerberos")
        await refused({**names, **keytab_login(made, "joe")}, KafkaError, code)
        await refused(names, KafkaError, "No Kerberos credentials available")
        without_user = {**names, **keytab_login(made, "bad/one"), "default.api.timeout.ms": "2000"}
        await refused(without_user, ClientError, "")
    untrusting = {**names, **cache, "ssl.ca.location": str(Authority(authority.folder / "other").trusted)}
    await refused(untrusting, AuthenticationError, "is not trusted")
    return count


def command(made: World, address: str) -> None:
    """Runs a command with a file of options, and the tickets of the environment."""
    file = made.kdc.folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.kerberos.kinit.cmd=/usr/bin/kinit\n"
    )
    run = [sys.executable, "-m", "ottla.tools", "topics", "--list", "--bootstrap-server", address]
    environ = {**os.environ, "KRB5CCNAME": f"FILE:{made.kdc.tickets('ann', made.clients)}"}
    done = subprocess.run([*run, "--command-config", str(file)], capture_output=True, text=True, env=environ)
    if done.returncode or "SASL_SSL-cache" not in done.stdout:
        raise Failed(f"ottla topics: {done.returncode}, {(done.stdout + done.stderr)[-500:]}")


def run_own(release: str | None) -> str:
    """Runs our clients at Apache Kafka, or at our broker with None. Raises Failed, Missing."""
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        if release is None:
            with serving(made, authority) as addresses:
                count = asyncio.run(own(made, addresses, authority))
                command(made, addresses[PROTOCOLS[0]])
        else:
            kafka = Kerberized(release, made, authority)
            try:
                addresses = {name: f"localhost:{port}" for name, port in kafka.ports.items()}
                count = asyncio.run(own(made, addresses, authority))
                command(made, addresses[PROTOCOLS[0]])
            finally:
                kafka.stop()
    return f"{count} clients with a keytab or a ticket cache, each refusal at once, and a command"


# Other clients at our broker


ALIKE: dict[str, Callable[[Path, Path], list[str]]] = {
    **{f"Java {release}": partial(java_command, release) for release in JAVA},
    "franz-go": franz_command,
}
"""Programs that take the same lines."""


def run_logins(command: Callable[[Path, Path], list[str]]) -> str:
    """Runs a program with right and wrong tickets. Raises Failed, Missing."""
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        with serving(made, authority) as addresses:
            wanted: dict[str, str] = {}
            lines: list[str] = []
            for protocol in PROTOCOLS:
                for user, service, outcome in (
                    ("ann", "kafka", "ok"),
                    ("app/one", "kafka", "ok"),
                    ("ann", "http", "refused"),
                ):
                    name = f"{protocol}-{user.replace('/', '-')}-{service}"
                    fields = (name, addresses[protocol], protocol, MECHANISM, user, str(made.clients), service)
                    lines.append("\t".join(fields))
                    wanted[name] = outcome
            found = outcomes(command(authority.trusted, authority.issue("own")), lines)
            if found != wanted:
                raise Failed(f"{found}")
    return f"{len(wanted)} logins, right and wrong"


def run_over_restarts(
    command: Callable[[Path, Path], list[str]],
    check: Callable[[Server, list[str], list[str]], str],
    more: Mapping[str, str],
) -> str:
    """Runs a program at a broker that restarts, or whose sessions are short. Raises Failed, Missing."""
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        broker = Server(server_properties(made, authority, more), LISTENERS)
        broker.start()
        try:
            lines = [
                "\t".join(
                    (protocol, broker.addresses[protocol], protocol, MECHANISM, "ann", str(made.clients), "kafka")
                )
                for protocol in PROTOCOLS
            ]
            return check(broker, command(authority.trusted, authority.issue("own")), lines)
        finally:
            broker.stop()


def run_without_handshake() -> str:
    """Runs the client of 0.9 at Apache Kafka's last release that serves it and at ours. Raises Failed, Missing."""
    folder = jars(f"kafka-clients-{OLDEST}", [f"org.apache.kafka:kafka-clients:{OLDEST}"])
    exports = "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        login = made.kdc.folder / "login.conf"
        options = f'useKeyTab=true storeKey=true keyTab="{made.clients}" principal="ann@{REALM}"'
        login.write_text(f"KafkaClient {{ {LOGIN_MODULE} required {options}; }};\n")

        def tried(address: str) -> bool:
            flags = [exports, f"-Djava.security.auth.login.config={login}"]
            program, *rest = java(folder, HERE / "Tickets.java", address, "tickets")
            done = subprocess.run([program, *flags, *rest], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            (OUT / "kerberos-oldest.log").write_text(done.stdout + done.stderr)
            return done.returncode == 0 and done.stdout.strip() == "ok"

        kafka = Kerberized(LAST, made, authority)
        try:
            theirs = tried(f"localhost:{kafka.ports[PROTOCOLS[0]]}")
        finally:
            kafka.stop()
        with serving(made, authority, "--release", LAST) as addresses:
            ours = tried(addresses[PROTOCOLS[0]])
        if not (ours and theirs):
            raise Failed(f"Kafka: {theirs}, ours: {ours}; see {OUT / 'kerberos-oldest.log'}")
    return f"a record written and read at Kafka {LAST} and at ours"


def kafka_python(names: Mapping[str, Any], topic: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(**names)
    producer.send(topic, topic.encode()).get(20)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **names)
    if next(consumer).value != topic.encode():
        raise Failed("kafka-python read another record")
    consumer.close()


async def aiokafka(names: Mapping[str, Any], topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    producer = AIOKafkaProducer(**names)
    try:
        await producer.start()
        await producer.send_and_wait(topic, topic.encode())
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **names)
    await consumer.start()
    record = await asyncio.wait_for(consumer.getone(), 20)
    await consumer.stop()
    if record.value != topic.encode():
        raise Failed("aiokafka read another record")


def run_python() -> str:
    """Runs kafka-python and aiokafka. Raises Failed, Missing."""
    from aiokafka.errors import KafkaError as AsyncError
    from aiokafka.helpers import create_ssl_context
    from kafka.errors import KafkaError as PythonError

    wrong = 0
    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        os.environ["KRB5CCNAME"] = f"FILE:{made.kdc.tickets('ann', made.clients)}"
        context = create_ssl_context(cafile=str(authority.trusted))
        with serving(made, authority) as addresses:
            asyncio.run(topics(addresses["PLAINTEXT"]))
            for protocol in PROTOCOLS:
                names = {
                    "bootstrap_servers": addresses[protocol],
                    "security_protocol": protocol,
                    "sasl_mechanism": MECHANISM,
                    "sasl_kerberos_service_name": "kafka",
                    "ssl_context": context if protocol == "SASL_SSL" else None,
                }
                other = {**names, "sasl_kerberos_domain_name": "localhost"}
                kafka_python(names, f"{protocol}-kafka-python")
                asyncio.run(aiokafka(other, f"{protocol}-aiokafka"))
                try:
                    kafka_python({**names, "sasl_kerberos_service_name": "http"}, "wrong")
                    raise Failed("kafka-python has logged in with a ticket of another service")
                except PythonError:
                    wrong += 1
                try:
                    asyncio.run(aiokafka({**other, "sasl_kerberos_service_name": "http"}, "wrong"))
                    raise Failed("aiokafka has logged in with a ticket of another service")
                except AsyncError:
                    wrong += 1
        log = (OUT / "kerberos.log").read_text()
        refusals = [line for line in log.splitlines() if f"Kerberos: Cannot decrypt ticket for {OTHER}" in line]
        for library in LIBRARIES:
            if not any(f"client_id={library}" in line for line in refusals):
                raise Failed(f"{library}: the broker has refused no ticket, see {OUT / 'kerberos.log'}")
    return f"{2 * len(PROTOCOLS)} clients that log in, {wrong} with a ticket of another service"


def restart(broker: Server, how: signal.Signals) -> None:
    broker.stop(how)
    broker.start()


def kafka_python_over_restarts(broker: Server, names: Mapping[str, Any], topic: str) -> None:
    """Sends and reads while the broker ends cleanly, and by SIGKILL."""
    from kafka import KafkaConsumer, KafkaProducer

    missing = {f"{topic}{number}".encode() for number in range(RECORDS)}
    producer = KafkaProducer(**names, acks="all", retries=1000, retry_backoff_ms=100)
    sent: list[Any] = []
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for number, value in enumerate(sorted(missing)):
            if number in RESTARTS:
                pool.submit(restart, broker, RESTARTS[number])
            sent.append(producer.send(topic, value))
            time.sleep(0.01)
    for one in sent:
        one.get(60)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **names)
    for record in consumer:
        missing.discard(record.value)
        if not missing:
            break
    consumer.close()
    if missing:
        raise Failed(f"kafka-python: {len(missing)} of {RECORDS} records are lost")


async def aiokafka_over_restarts(broker: Server, names: Mapping[str, Any], topic: str) -> None:
    """Sends and reads while the broker ends cleanly, and by SIGKILL."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    missing = {f"{topic}{number}".encode() for number in range(RECORDS)}
    producer = AIOKafkaProducer(**names, acks="all", request_timeout_ms=60_000)
    await producer.start()
    sent: list[Any] = []
    restarting: list[Any] = []
    try:
        for number, value in enumerate(sorted(missing)):
            if number in RESTARTS:
                restarting.append(asyncio.create_task(asyncio.to_thread(restart, broker, RESTARTS[number])))
            sent.append(await producer.send(topic, value))
            await asyncio.sleep(0.01)
        await asyncio.gather(*restarting, *sent)
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **names)
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            while missing:
                missing.discard((await consumer.getone()).value)
    except TimeoutError:
        raise Failed(f"aiokafka: {len(missing)} of {RECORDS} records are lost") from None
    finally:
        await consumer.stop()


def kafka_python_in_transactions(names: Mapping[str, Any], topic: str) -> None:
    """An aborted and a committed transaction, both longer than sessions."""
    from kafka import KafkaConsumer, KafkaProducer

    missing: set[bytes] = set()
    producer = KafkaProducer(**names, transactional_id=topic, acks="all")
    producer.init_transactions()
    for kind in ("aborted", "committed"):
        producer.begin_transaction()
        end = time.monotonic() + TRANSACTION_MS / 1000
        while time.monotonic() < end:
            value = f"{kind}{len(missing)}".encode()
            producer.send(topic, value).get(20)
            missing |= {value} if kind == "committed" else set()
            time.sleep(0.02)
        producer.commit_transaction() if kind == "committed" else producer.abort_transaction()
    producer.close()
    reading = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 20_000, "isolation_level": "read_committed"}
    consumer = KafkaConsumer(topic, **reading, **names)
    for record in consumer:
        if record.value not in missing:
            raise Failed(f"kafka-python: {record.value} was not committed")
        missing.discard(record.value)
        if not missing:
            break
    consumer.close()
    if missing:
        raise Failed(f"kafka-python: {len(missing)} committed records are lost")


async def aiokafka_in_transactions(names: Mapping[str, Any], topic: str) -> None:
    """An aborted and a committed transaction, both longer than sessions."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    missing: set[bytes] = set()
    producer = AIOKafkaProducer(**names, transactional_id=topic)
    await producer.start()
    try:
        for kind in ("aborted", "committed"):
            await producer.begin_transaction()
            end = time.monotonic() + TRANSACTION_MS / 1000
            while time.monotonic() < end:
                value = f"{kind}{len(missing)}".encode()
                await producer.send_and_wait(topic, value)
                missing |= {value} if kind == "committed" else set()
                await asyncio.sleep(0.02)
            await (producer.commit_transaction() if kind == "committed" else producer.abort_transaction())
    finally:
        await producer.stop()
    reading = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    consumer = AIOKafkaConsumer(topic, **reading, **names)
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            while missing:
                missing.remove((await consumer.getone()).value or b"")
    except (TimeoutError, KeyError) as error:
        raise Failed(f"aiokafka: {len(missing)} committed records are lost, or {error}") from None
    finally:
        await consumer.stop()


def run_python_at(more: Mapping[str, str], in_transactions: bool) -> str:
    """Runs kafka-python and aiokafka at a broker that restarts, or, in transactions, at one whose sessions are short.
    Raises Failed, Missing."""
    from aiokafka.helpers import create_ssl_context

    with world() as made:
        authority = Authority(made.kdc.folder / "authority")
        os.environ["KRB5CCNAME"] = f"FILE:{made.kdc.tickets('ann', made.clients)}"
        context = create_ssl_context(cafile=str(authority.trusted))
        broker = Server(server_properties(made, authority, more), LISTENERS)
        broker.start()
        try:
            asyncio.run(topics(broker.addresses["PLAINTEXT"]))
            for protocol in PROTOCOLS:
                names = {
                    "bootstrap_servers": broker.addresses[protocol],
                    "security_protocol": protocol,
                    "sasl_mechanism": MECHANISM,
                    "sasl_kerberos_service_name": "kafka",
                    "ssl_context": context if protocol == "SASL_SSL" else None,
                }
                other = {**names, "sasl_kerberos_domain_name": "localhost"}
                one, two = (f"{protocol}-{library}" for library in LIBRARIES)
                if in_transactions:
                    kafka_python_in_transactions(names, one)
                    asyncio.run(aiokafka_in_transactions(other, two))
                else:
                    kafka_python_over_restarts(broker, names, one)
                    asyncio.run(aiokafka_over_restarts(broker, other, two))
            if in_transactions:
                renewed, ended = map(broker.metric, ("successful_reauthentication", "expired_connections_killed"))
                if renewed + ended < 2 * len(PROTOCOLS):
                    raise Failed(f"{renewed} renewals, {ended} sessions ended")
                return f"a committed and an aborted transaction each, {renewed} renewals, {ended} sessions ended"
        finally:
            broker.stop()
    return f"{2 * len(PROTOCOLS)} times {RECORDS} records, none lost over {len(RESTARTS)} restarts each"


async def topics(address: str) -> None:
    names = [f"{protocol}-{library}" for protocol in PROTOCOLS for library in LIBRARIES]
    async with Admin(address) as admin:
        checked(await admin.create_topics([NewTopic(name, 1) for name in names]))


CHECKS = [
    Check(f"kerberos: each token beside Kafka {RELEASES[BESIDE]}", partial(beside, BESIDE)),
    Check("kerberos: our client at our broker", partial(run_own, None)),
    Check(f"kerberos: our client at Kafka {RELEASES[BESIDE]}", partial(run_own, BESIDE)),
    *(Check(f"kerberos: {name}", partial(run_logins, command)) for name, command in ALIKE.items()),
    *(
        Check(f"kerberos: {name}, {subject}", partial(run_over_restarts, command, check, more))
        for subject, check, more in (
            ("restarts", over_restarts, {}),
            ("sessions renewed in transactions", with_renewals, {"connections.max.reauth.ms": str(SESSION_MS)}),
        )
        for name, command in ALIKE.items()
    ),
    Check(f"kerberos: Java {OLDEST}, without SaslHandshake", run_without_handshake),
    Check("kerberos: kafka-python, aiokafka", run_python),
    Check("kerberos: kafka-python, aiokafka, restarts", partial(run_python_at, {}, False)),
    Check(
        "kerberos: kafka-python, aiokafka, sessions in transactions",
        partial(run_python_at, {"connections.max.reauth.ms": str(SESSION_MS)}, True),
    ),
]
