"""Takes the screenshots of the documentation: the web page of a broker with traffic, and `ottla top`.

    .venv/bin/python docs/screenshots.py [chromium]

It needs the extras of `make test` and a Chromium. The images are committed in `docs/assets`.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer

from ottla.broker import Embedded
from ottla.tools.http_client import Client
from ottla.tools.top.app import Top
from ottla.tools.top.rates import Overview

ASSETS = Path(__file__).parent / "assets"
WARM_UP_S = 14  # rates and the trend of lag are over ten seconds
RECORDS_PER_S = {"web": 300, "shop": 60, "billing": 3}


def produce(bootstrap: str, name: str, topic: str, rate: int, stop: threading.Event) -> None:
    """Sends orders at a rate until `stop` is set."""
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 5, "enable.idempotence": True})
    number = 0
    while not stop.wait(1 / rate):
        number += 1
        order = {"id": 4700 + number, "item": ("bread", "milk", "tea")[number % 3], "count": number % 5 + 1}
        producer.produce(topic, json.dumps(order).encode(), str(order["id"]).encode(), headers={"source": name})
        producer.poll(0)
    producer.flush(5)


def consume(bootstrap: str, name: str, group: str, topic: str, pause_s: float, stop: threading.Event) -> None:
    """Reads a topic as a member of a group until `stop` is set, with a pause after each record."""
    settings = {"client.id": name, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "auto.commit.interval.ms": 500, **settings})
    consumer.subscribe([topic])
    while not stop.is_set():
        consumer.poll(0.1)
        stop.wait(pause_s)
    consumer.close()


def transactions(bootstrap: str) -> None:
    """One committed, one aborted and one open transaction in the topic `payments`."""
    for name, finish in (("committed", "commit_transaction"), ("aborted", "abort_transaction"), ("open", None)):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": "ledger", "transactional.id": f"ledger-{name}"}
        )
        producer.init_transactions(10)
        producer.begin_transaction()
        for number in range(3):
            producer.produce("payments", json.dumps({"payment": number, "state": name}).encode(), b"4711", partition=0)
        producer.flush(10)
        if finish:
            getattr(producer, finish)(10)
        OPEN.append(producer)  # an open transaction stays open while its producer lives


OPEN: list[Producer] = []


async def screen_of_top(url: str) -> str:
    """The screen of `ottla top` after some seconds, as SVG."""
    client = Client(url, 5.0)

    def fetch(contains: str) -> Overview:
        return client.request("GET", "overview", query={"limit": 50, "contains": contains or None})

    app = Top(fetch, url, 1.0, "")
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.pause(12)
        await pilot.press("4")
        await pilot.pause(2)
        svg = app.export_screenshot(title="ottla top")
    return re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")


def shoot(chromium: str, url: str, name: str, *, height: int, is_dark: bool = False) -> None:
    """A screenshot of a page, as an image in `docs/assets`."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size=1200,{height}"]
    if is_dark:
        flags += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, *flags, f"--user-data-dir={profile}", f"--screenshot={ASSETS / name}", url]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def main(chromium: str = "chromium") -> None:
    with Embedded(control="127.0.0.1:0", control_write=True, brokers=3) as broker:
        broker.create_topic("orders", partitions=3)
        broker.create_topic("payments", partitions=1)
        broker.create_topic("accounts", partitions=2, configs={"cleanup.policy": "compact"})
        stop = threading.Event()
        work = [(produce, name, "orders", rate) for name, rate in RECORDS_PER_S.items()]
        work += [(consume, "ana", "analytics", "orders", 0.0), (consume, "ship-1", "shipping", "orders", 0.02)]
        threads = [threading.Thread(target=do, args=(broker.bootstrap, *rest, stop), daemon=True) for do, *rest in work]
        for thread in threads:
            thread.start()
        transactions(broker.bootstrap)
        broker.faults.delay("Fetch", 20, client_id="ship-*")
        time.sleep(WARM_UP_S)
        url = str(broker.control_url)
        (ASSETS / "top.svg").write_text(asyncio.run(screen_of_top(url)))
        shoot(chromium, f"{url}/", "page-overview.png", height=1000, is_dark=True)
        shoot(chromium, f"{url}/messages/payments?partition=0&offset=0", "page-messages.png", height=900)
        shoot(chromium, f"{url}/groups/shipping", "page-group.png", height=700)
        with urlopen(f"{url}/v1/requests?api=Produce&client_id=billing&order=newest&limit=1") as response:
            (request,) = json.load(response)["requests"]
        shoot(chromium, f"{url}/requests/{request['number']}", "page-request.png", height=1100)
        stop.set()
        for thread in threads:
            thread.join(10)


if __name__ == "__main__":
    main(*sys.argv[1:])
