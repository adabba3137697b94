"""`ottla top` in a real terminal (tmux), over a broker that real clients keep busy: what its screens show at 80x24 and
at 160x50, its keys and the mouse, a client with a hostile name, and a broker that goes and comes back.

The screens are left in out/interop/top-*.txt.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla_testing.interop.checks import OUT, Check, Failed, Missing

PATIENCE_SECONDS = 60.0
NARROW, WIDE = (80, 24), (160, 50)
QUIET = logging.Logger("clients", logging.CRITICAL + 1)  # librdkafka's messages about a stopped broker are expected
CLICKS = "clicks-of-everybody-who-looks-around.v2"
HOSTILE = "[bold red]web[/]\x1b[31m"
KEYS = ("1", "2", "3", "4", "5", "6", "7")

# What each tab shows of the load below, at any width, and what there is room for in a wide terminal alone.
SHOWN: dict[str, tuple[str, ...]] = {
    "1": ("TOPIC", "IN REC/S", "OUT B/S", "orders", "clicks", "__consumer_offsets"),
    "2": ("GROUP", "LAG", "TREND", "shipping", "late", "Stable", "Empty"),
    "3": ("ID", "EPOCH", "SEQUENCE", "TRANSACTION", "orders-0", "open from"),
    "4": ("CLIENT", "SOFTWARE", "REQ/S", "shop", "ship-1", "[bold red]web[/]\\x1b[31m"),
    "5": ("TOOK", "REQUEST", "CLIENT", "AGO", " ms", "Produce v", "shop"),
    "6": ("FOR SO LONG", "WAITS FOR", "Fetch v", "records", "ship-1"),
    "7": ("ID", "ACTION", "MATCHED", "FIRED", "delay", "api=Heartbeat"),
}
WIDER: dict[str, tuple[str, ...]] = {
    "1": (CLICKS,),
    "2": ("PROTOCOL", "TOPICS", "range"),
    "3": ("TRANSACTIONAL ID", "billing-1", "LAST TIMESTAMP (UTC)"),
    "4": ("HOSTS", "VERSIONS", "confluent-kafka-python 2", "127.0.0.1", "Produce:"),
    "5": ("REQUEST B", "NUMBER", "responded"),
    "6": ("NUMBER",),
    "7": ("WHERE",),
}


def tmux_there() -> str:
    """Returns the path of tmux. Raises Missing."""
    found = shutil.which("tmux")
    if found is None:
        raise Missing("no tmux here; `make system-packages` installs it")
    return found


class Terminal:
    """A terminal of its own with one command in it."""

    def __init__(self, program: str, size: tuple[int, int], command: str) -> None:
        self.size = size
        self._tmux = [program, "-L", f"ottla-{os.getpid()}", "-f", "/dev/null"]
        width, height = map(str, size)
        self._run("new-session", "-d", "-s", "top", "-x", width, "-y", height, f"{command}; echo ended with $?; cat")

    def _run(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"tmux {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def press(self, *keys: str) -> None:
        """Keys by tmux's names."""
        for key in keys:
            self._run("send-keys", "-t", "top", key)

    def click(self, x: int, y: int) -> None:
        """Clicks the left button, at a place counted from 0."""
        for end in "Mm":
            self._run("send-keys", "-t", "top", "-l", f"\x1b[<0;{x + 1};{y + 1}{end}")

    def resize(self, size: tuple[int, int]) -> None:
        """Resizes the terminal."""
        self.size = size
        self._run("resize-window", "-t", "top", "-x", str(size[0]), "-y", str(size[1]))

    @property
    def lines(self) -> list[str]:
        """The lines of the screen."""
        return self._run("capture-pane", "-t", "top", "-p").rstrip("\n").split("\n")

    def until(self, what: str, holds: Callable[[list[str]], Any]) -> list[str]:
        """Waits for a condition and returns the screen."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds(lines := self.lines):
            if time.monotonic() > deadline:
                raise Failed(f"the screen never showed {what}:\n" + "\n".join(lines))
            time.sleep(0.05)
        return lines

    def shows(self, *words: str) -> list[str]:
        """Waits until the screen has all these texts, and returns it."""
        return self.until(", ".join(words), lambda lines: all(word in "\n".join(lines) for word in words))

    def close(self) -> None:
        """Ends it."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


class Served:
    """`ottla serve --control` as a process that may be stopped and started again at the same addresses."""

    def __init__(self, data: str) -> None:
        with socket.socket() as one, socket.socket() as other:
            for sock in (one, other):
                sock.bind(("127.0.0.1", 0))
            self.bootstrap, self.control = (f"127.0.0.1:{sock.getsockname()[1]}" for sock in (one, other))
        self._command = [sys.executable, "-m", "ottla.tools", "serve", "--data-dir", data]
        self._command += ["--listen", self.bootstrap, "--control", self.control]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with (OUT / "top.log").open("a") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for word in ("ready", "control"):
            if f"ottla {word} on" not in self._process.stdout.readline():
                raise Failed(f"the broker did not start; see {log.name}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def ctl(self, *words: str) -> None:
        command = [sys.executable, "-m", "ottla.tools", "ctl", "--control", self.control, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"ottla ctl {words[0]}: {done.stderr.strip()}")


@contextlib.contextmanager
def busy(bootstrap: str) -> Iterator[None]:
    """Runs real clients that produce, also in a transaction, and consume, one of them far too slowly."""
    from confluent_kafka import Consumer, KafkaException, Producer

    ending = threading.Event()

    def configs(**more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": bootstrap} | {name.replace("_", "."): value for name, value in more.items()}

    def producing(topic: str, client_id: str, each_seconds: float) -> None:
        producer = Producer(configs(client_id=client_id, enable_idempotence=True), logger=QUIET)
        while not ending.wait(each_seconds):
            producer.produce(topic, b"x" * 200)
            producer.poll(0)
        producer.purge()

    def transacting() -> None:
        given = configs(client_id="billing", transactional_id="billing-1", transaction_timeout_ms=900_000)
        producer = Producer(given, logger=QUIET)
        producer.init_transactions()
        producer.begin_transaction()  # and never ends it
        while not ending.wait(0.1):
            producer.produce("orders", b"invoice", partition=0)
            producer.poll(0)
        producer.purge()

    def consumer(group_id: str, client_id: str) -> Any:
        given = configs(group_id=group_id, client_id=client_id, auto_offset_reset="earliest")
        return Consumer({**given, "isolation.level": "read_uncommitted"}, logger=QUIET)

    def consuming() -> None:
        reading = consumer("shipping", "ship-1")
        reading.subscribe(["orders"])
        while not ending.is_set():
            reading.poll(0.1)
        reading.close()

    def once() -> None:
        """Commits at the start, and leaves."""
        reading = consumer("late", "late-1")
        reading.subscribe([CLICKS])
        while reading.poll(1.0) is None and not ending.is_set():
            pass
        with contextlib.suppress(KafkaException):  # nothing came before the end
            reading.commit(asynchronous=False)
        reading.close()

    work = [
        threading.Thread(target=producing, args=("orders", "shop", 0.005), daemon=True),
        threading.Thread(target=producing, args=(CLICKS, HOSTILE, 0.02), daemon=True),
        *(threading.Thread(target=run, daemon=True) for run in (transacting, consuming, once)),
    ]
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in work:
            thread.join(PATIENCE_SECONDS)


@contextlib.contextmanager
def world(size: tuple[int, int]) -> Iterator[tuple[Served, Terminal]]:
    """Yields a busy broker, and `ottla top` over it."""
    program = tmux_there()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data:
        served = Served(data)
        served.start()
        try:
            served.ctl("topics", "create", "orders", "--partitions", "3")
            served.ctl("topics", "create", CLICKS)
            served.ctl("faults", "add", "delay", "Heartbeat", "1ms")
            command = [sys.executable, "-m", "ottla.tools", "top", "--control", served.control]
            with busy(served.bootstrap):
                terminal = Terminal(program, size, shlex.join(command))
                try:
                    yield served, terminal
                finally:
                    terminal.close()
        finally:
            served.stop()


def sound(lines: list[str], size: tuple[int, int], where: str) -> None:
    """Checks a screen: its number of lines, their width, printable characters only, the header and the keys."""
    problems = []
    if len(lines) > size[1] or any(len(line) > size[0] for line in lines):
        problems.append("it is larger than the terminal")
    if not all(letter.isprintable() for line in lines for letter in line):
        problems.append("it has letters that are none")
    if "ottla" not in lines[0] or "clock" not in lines[1] + lines[0] or "1 Topics" not in lines[3]:
        problems.append("its head is not whole")
    if "q Quit" not in lines[-1]:
        problems.append("it does not show the keys")
    if problems:
        raise Failed(f"{where}: {'; '.join(problems)}:\n" + "\n".join(lines))


def screens(size: tuple[int, int]) -> str:
    """Shows each tab, complete, with its contents."""
    name = f"{size[0]}x{size[1]}"
    with world(size) as (_, terminal):
        terminal.shows("rec/s", "orders")
        for key in KEYS:
            terminal.press(key)
            lines = terminal.shows(*SHOWN[key], *(WIDER[key] if size == WIDE else ()))
            sound(lines, size, f"tab {key} at {name}")
            (OUT / f"top-{name}-{key}.txt").write_text("\n".join(lines) + "\n")
    return f"{len(KEYS)} tabs at {name}"


def keys() -> str:
    """Uses sorting, filter, pause, help, details, the mouse, another size, and the end."""
    with world(NARROW) as (_, terminal):
        terminal.shows("IN REC/S ▼", "rec/s")
        terminal.press("r")
        terminal.shows("IN REC/S ▲")
        terminal.press("<")
        terminal.shows("SIZE ▲")
        terminal.press("/", "L", "I", "C", "K")
        terminal.until(
            "the filter", lambda lines: "clicks" in "\n".join(lines) and "__consumer" not in "\n".join(lines)
        )
        terminal.press("Escape")
        terminal.shows("__consumer_offsets")
        terminal.press("?")
        terminal.shows("sort by the column to the left", "Escape")
        terminal.press("q")
        terminal.until("the table again", lambda now: "╭" not in "\n".join(now))
        terminal.press("2", "Enter")
        sound(terminal.shows("generation", "committed per second"), NARROW, "details")
        terminal.press("q")
        terminal.until("the table again", lambda now: "╭" not in "\n".join(now))
        terminal.click(36, 3)
        terminal.shows("SOFTWARE", "shop")
        terminal.press("p")
        terminal.shows("PAUSED")
        time.sleep(0.5)  # until all of it is drawn
        lines = terminal.lines
        time.sleep(1.5)
        if terminal.lines != lines:
            raise Failed("it continues although it is paused:\n" + "\n".join(terminal.lines))
        terminal.press("Space")
        terminal.until("that it continues", lambda now: "PAUSED" not in now[0])
        terminal.resize(WIDE)
        sound(terminal.shows("HOSTS", "VERSIONS"), WIDE, "made larger")
        terminal.resize(NARROW)

        def is_drawn(now: list[str]) -> bool:
            text = "\n".join(now)
            return "HOSTS" not in text and "SOFTWARE" in text and bool(now[0].strip()) and "q Quit" in now[-1]

        lines = terminal.until("less", is_drawn)
        sound(lines, NARROW, "made smaller")
        terminal.press("q")
        lines = terminal.shows("ended with 0")
        if "Topics" in "\n".join(lines):
            raise Failed("its screen is left after the end:\n" + "\n".join(lines))
    return "sort, filter, help, details, mouse, pause, sizes, quit"


def comes_back() -> str:
    """Stops the broker, and starts it again at the same address."""
    with world(NARROW) as (served, terminal):
        terminal.shows("rec/s", "orders")
        served.stop()
        lines = terminal.shows("no control plane at", "orders")
        if "q Quit" not in lines[-1]:
            raise Failed("it is not whole while the broker is gone:\n" + "\n".join(lines))
        served.start()
        lines = terminal.until("it again", lambda now: "no control plane" not in now[1] and "rec/s" in now[2])
        sound(lines, NARROW, "after a restart")
        terminal.press("q")
        terminal.shows("ended with 0")
    return "a stop and a start of the broker"


CHECKS = [
    Check("ottla top: screens of 80x24 in a terminal", lambda: screens(NARROW)),
    Check("ottla top: screens of 160x50 in a terminal", lambda: screens(WIDE)),
    Check("ottla top: keys and mouse in a terminal", keys),
    Check("ottla top: a broker that goes and comes back", comes_back),
]
