"""One life of a client: `python life.py CONFIG` works in its role until SIGTERM, and records what it does.
CONFIG is JSON: history, process, number (unique in the run), address, library, role, seed, hung_s, and depending on the
role topics, group and transactional_id; `in_truth` is the actual isolation of a client that records read_committed,
`protocol` the group protocol: "classic", "consumer" (KIP-848), or "either", which is chosen for each life.
Roles:
    sender      sends plainly (idempotent) to `partitions`
    group       a member of `group`: polls, sometimes commits
    writer      sends to `partitions` in transactions; commits or aborts
    sharer      a member of the share group `group` with the configs `share`: acknowledges in all ways, or not
    loop        a member of `group` that makes one record in `target` from each record, in transactions with the offsets
The exit code is not 0 if its client can do nothing more; the next life starts again.
"""

from __future__ import annotations

import importlib
import json
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ottla_testing.history.history import Recorder
from ottla_testing.history.ports import (
    Abortable,
    Acks,
    Final,
    Joining,
    Lost,
    NotSent,
    OnSent,
    Receiving,
    Sending,
    Sharing,
    split,
)
from ottla_testing.history.shares import ACCEPT, REJECT, RELEASE, RENEW

VALUES_PER_LIFE = 10_000_000
TRANSACTION_TIMEOUT_MS = 6000
WINDOW = 200  # records whose outcome is not known yet
IDLE_S = 0.02


def is_mistake(error: Exception) -> bool:
    """Returns whether this program is wrong; clients also raise such errors when a connection is lost at a bad
    moment."""
    place = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, (NameError, TypeError, AttributeError)) and Path(place).parent == Path(__file__).parent


class Life:
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.recorder = Recorder(config["history"], config["process"])
        self.choose = random.Random(config["seed"])
        self.library = importlib.import_module(f"ottla_testing.history.life_{config['library']}")
        self.stopped = False
        self.values = config["number"] * VALUES_PER_LIFE
        self.unacknowledged = 0
        self.txns = 0
        signal.signal(signal.SIGTERM, self._stop)
        self.lives()

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def run(self) -> int:
        known = {name: self.config[name] for name in ("group", "transactional_id") if self.config.get(name)}
        isolation = {"isolation": "read_committed"} if "group" in known else {}
        if "share" in self.config:
            isolation = {"share": self.config["share"]}
        self.recorder.ok("start", client=self.config["library"], role=self.config["role"], **isolation, **known)
        try:
            getattr(self, f"_{self.config['role']}")()
        except Exception as error:  # libraries raise many kinds when a broker is down or a newer instance exists
            if is_mistake(error):
                raise
            traceback.print_exc()
            self.recorder.ok("exit", error=f"{type(error).__name__}: {error}"[:300])
            return 3
        self.recorder.ok("exit", error=None)
        return 0

    def lives(self) -> None:
        """Must be called regularly; otherwise the process is killed, even during a call into C. Some clients wait for
        ever for a lost response; librdkafka 2.16.0 does not send the offsets of a transaction, nor ends the call after
        its timeout, if it lost its only connection during AddOffsetsToTxn (its issues 5511 and 5456).
        """
        signal.alarm(self.config["hung_s"])

    # -- sending

    def send(self, sending: Sending, partition: str, **more: Any) -> None:
        self.values += 1
        value = self.values
        data = b"%d:" % value + b"." * self.choose.randrange(200)
        self.recorder.invoke("send", partition=partition, value=value, **more)
        self.unacknowledged += 1
        try:
            sending.send(partition, data, self.on_sent(value))
        except NotSent as error:
            self.unacknowledged -= 1
            self.recorder.fail("send", error, value=value)

    def on_sent(self, value: int) -> OnSent:
        def record(offset: int | None, error: object | None) -> None:
            self.unacknowledged -= 1
            if error is None:
                self.recorder.ok("send", value=value, offset=-1 if offset is None else offset)
            else:
                self.recorder.info("send", error, value=value)

        return record

    def sending(self) -> Sending:
        name = self.config.get("transactional_id")
        sending: Sending = self.library.Sending(self.config["address"], name, TRANSACTION_TIMEOUT_MS)
        if name:
            self.recorder.invoke("init", transactional_id=name)
            try:
                sending.init()
            except (Final, Abortable) as error:
                self.recorder.info("init", error, transactional_id=name)
                raise
            self.recorder.ok("init", transactional_id=name)
        return sending

    def _sender(self) -> None:
        sending = self.sending()
        partitions = self.config["partitions"]
        while not self.stopped:
            self.lives()
            if self.unacknowledged < WINDOW:
                for _ in range(self.choose.randrange(1, 8)):
                    self.send(sending, self.choose.choice(partitions))
            sending.work(self.choose.random() * 4 * IDLE_S)
        self.lives()
        sending.flush()
        sending.close()

    # -- transactions

    def begin(self, sending: Sending) -> str:
        self.txns += 1
        name = f"{self.config['process']}#{self.txns}"
        sending.begin()
        self.recorder.ok("begin", txn=name, transactional_id=self.config["transactional_id"])
        return name

    def end(self, sending: Sending, txn: str, how: str) -> None:
        """Raises Abortable or Final."""
        self.recorder.invoke(how, txn=txn)
        try:
            sending.commit() if how == "commit" else sending.abort()
        except (Abortable, Final) as error:
            self.recorder.info(how, error, txn=txn)
            raise
        self.recorder.ok(how, txn=txn)

    def _writer(self) -> None:
        sending = self.sending()
        partitions = self.config["partitions"]
        while not self.stopped:
            self.lives()
            txn = self.begin(sending)
            try:
                for _ in range(self.choose.choice((1, 1, 3, 10, 30))):
                    self.send(sending, self.choose.choice(partitions), txn=txn)
                    if self.choose.random() < 0.1:
                        sending.work(self.choose.random() * IDLE_S)
                if self.choose.random() < 0.1:
                    sending.work(self.choose.random())
                self.end(sending, txn, "commit" if self.choose.random() < 0.8 else "abort")
            except Abortable:
                self.end(sending, txn, "abort")
            sending.work(self.choose.random() * 4 * IDLE_S)
        self.lives()
        sending.close()

    # -- receiving

    def receiving(self) -> tuple[Receiving, Polled]:
        polled = Polled(self.recorder, self.config["group"])
        isolation, protocol = self.config.get("in_truth", "read_committed"), self.config.get("protocol", "classic")
        protocol = self.choose.choice(("classic", "consumer")) if protocol == "either" else protocol
        joining = Joining(self.config["group"], self.config["topics"], isolation, protocol)
        make = self.library.Receiving
        receiving = make(self.config["address"], joining, polled.took, polled.assigned, polled.revoked)
        return receiving, polled

    def _member(self) -> None:
        receiving, polled = self.receiving()
        group = self.config["group"]
        while not self.stopped:
            self.lives()
            receiving.poll(0.1)
            offsets = polled.uncommitted()
            if offsets and self.choose.random() < 0.5:
                self.recorder.invoke("commit_offsets", group=group, offsets=offsets)
                try:
                    receiving.commit(offsets)
                except Exception as error:
                    self.recorder.info("commit_offsets", error, group=group, offsets=offsets)
                else:
                    self.recorder.ok("commit_offsets", group=group, offsets=offsets)
                    polled.committed(offsets)
        self.lives()
        receiving.close()

    def _loop(self) -> None:
        sending = self.sending()
        receiving, polled = self.receiving()
        while not self.stopped:
            self.lives()
            receiving.poll(0.1)
            taken, offsets = polled.take(), polled.uncommitted()
            if not taken:
                continue
            txn = self.begin(sending)
            try:
                self._make(sending, receiving, txn, taken, offsets)
                if self.choose.random() < 0.9:
                    self.end(sending, txn, "commit")
                    polled.committed(offsets)
                    continue
            except Abortable:
                pass
            self.end(sending, txn, "abort")
            polled.rewound(receiving.rewind())
        self.lives()
        receiving.close()
        sending.close()

    def _make(
        self, sending: Sending, receiving: Receiving, txn: str, taken: list[tuple[str, int]], offsets: dict[str, int]
    ) -> None:
        """Makes a record in the target of each record that was polled, and sends the offsets."""
        for partition, value in taken:
            index = split(partition)[1] % self.config["target_partitions"]
            self.send(sending, f"{self.config['target']}-{index}", txn=txn, of=value)
        what = {"txn": txn, "group": self.config["group"], "offsets": offsets}
        self.recorder.invoke("send_offsets", **what)
        try:
            sending.send_offsets(offsets, receiving)
        except (Abortable, Final) as error:
            self.recorder.info("send_offsets", error, **what)
            raise
        self.recorder.ok("send_offsets", **what)

    # -- sharing

    def _sharer(self) -> None:
        joining = Joining(self.config["group"], self.config["topics"], self.config["share"]["isolation"])
        sharing: Sharing = self.library.Sharing(self.config["address"], joining)
        while not self.stopped:
            self.lives()
            try:
                self._share(sharing)
            except Lost:  # its operation is recorded
                sharing.break_off()
                time.sleep(self.choose.random() * 0.2)
        self.lives()
        sharing.close()

    def _share(self, sharing: Sharing) -> None:
        """One round: fetches, perhaps waits for longer than the lock, acknowledges in one or two requests."""
        sharing.ready()
        held = self._fetch(sharing)
        chance = self.choose.random
        if not held or (sharing.session is not None and chance() < 0.02):
            return
        if chance() < 0.05:
            time.sleep(chance() * 1.2 * self.config["share"]["lock_s"])
        if sharing.session is not None and chance() < 0.15:
            some = {partition: offsets for partition, offsets in held.items() if chance() < 0.7}
            self._acknowledge(sharing, {p: dict.fromkeys(offsets, RENEW) for p, offsets in some.items()})
            time.sleep(chance() * 0.6 * self.config["share"]["lock_s"])
        if sharing.session is not None and chance() < 0.05:
            self._leave_session(sharing)
            return
        acks = {p: {offset: self._kind() for offset in offsets} for p, offsets in held.items()}
        if sharing.session is not None and chance() < 0.3:
            held = self._fetch(sharing, acks)
            if not held or chance() < 0.2:
                return
            acks = {p: {offset: self._kind() for offset in offsets} for p, offsets in held.items()}
        self._acknowledge(sharing, acks)

    def _kind(self) -> int:
        return self.choose.choices((ACCEPT, RELEASE, REJECT), (90, 8, 2))[0]

    def _leave_session(self, sharing: Sharing) -> None:
        known = {"group": self.config["group"], "session": sharing.session}
        how = self.choose.choice((sharing.reopen, sharing.end, sharing.break_off))
        self.recorder.invoke("share_close", **known, how=how.__name__)
        try:
            how()
        except Lost as error:
            self.recorder.info("share_close", error, **known)
            raise
        self.recorder.ok("share_close", **known)

    def _fetch(self, sharing: Sharing, acks: Acks | None = None) -> dict[str, list[int]]:
        """Returns the offsets that were delivered."""
        known = {"group": self.config["group"], "session": sharing.session}
        if acks:
            self.recorder.invoke("share_ack", **known, acks=_pairs(acks))
        self.recorder.invoke("share_fetch", **known)
        try:
            found, results = sharing.fetch(0.2, acks)
        except Lost as error:
            self.recorder.info("share_fetch", error)
            if acks:
                self.recorder.info("share_ack", error)
            raise
        records = {
            partition: [(offset, int(data.partition(b":")[0]), count) for offset, data, count in rows]
            for partition, rows in found.items()
        }
        self.recorder.ok("share_fetch", records=records)
        if acks:
            self.recorder.ok("share_ack", partitions=results)
        return {partition: [offset for offset, _, _ in rows] for partition, rows in found.items()}

    def _acknowledge(self, sharing: Sharing, acks: Acks) -> None:
        if not acks:
            return
        known = {"group": self.config["group"], "session": sharing.session}
        self.recorder.invoke("share_ack", **known, acks=_pairs(acks))
        try:
            results = sharing.acknowledge(acks)
        except Lost as error:
            self.recorder.info("share_ack", error)
            raise
        self.recorder.ok("share_ack", partitions=results)


def _pairs(acks: Acks) -> dict[str, list[tuple[int, int]]]:
    return {partition: list(kinds.items()) for partition, kinds in acks.items()}


class Polled:
    """What a member of a group has polled, and its positions; records it."""

    def __init__(self, recorder: Recorder, group: str) -> None:
        self._recorder, self._group = recorder, group
        self._positions: dict[str, int] = {}
        self._committed: dict[str, int] = {}
        self._revoked: dict[str, int] = {}  # the positions before a rebalance
        self._unwritten: dict[str, list[tuple[int, int]]] = {}
        self._taken: list[tuple[str, int]] = []

    def took(self, partition: str, records: list[tuple[int, bytes]]) -> None:
        pairs = [(offset, int(data.partition(b":")[0])) for offset, data in records]
        self._unwritten.setdefault(partition, []).extend(pairs)
        self._taken += [(partition, value) for _, value in pairs]
        self._positions[partition] = pairs[-1][0] + 1

    def write(self) -> None:
        if self._unwritten:
            self._recorder.ok("poll", records=self._unwritten)
            self._unwritten = {}

    def assigned(self, partitions: list[str], kept: Sequence[str] = ()) -> None:
        """`kept` are those that the client does not read again from the committed offset, but from its own position."""
        self.write()
        self._forget(partitions)
        self._positions |= {name: self._revoked[name] for name in kept if name in self._revoked}
        self._revoked = {}
        self._recorder.ok("assign", group=self._group, partitions=partitions)

    def revoked(self, partitions: list[str]) -> None:
        self.write()
        self._revoked = {name: self._positions[name] for name in partitions if name in self._positions}
        self._forget(partitions)
        self._recorder.ok("revoke", partitions=partitions)

    def _forget(self, partitions: list[str]) -> None:
        for partition in partitions:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
        self._taken = [one for one in self._taken if one[0] not in partitions]

    def rewound(self, places: dict[str, int | None]) -> None:
        self.write()
        self._forget(list(places))
        for partition, offset in places.items():
            self._recorder.ok("seek", partition=partition, offset=offset)

    def take(self) -> list[tuple[str, int]]:
        """Returns (partition, value) of the records since the last call."""
        self.write()
        taken, self._taken = self._taken, []
        return taken

    def uncommitted(self) -> dict[str, int]:
        self.write()
        return {p: offset for p, offset in self._positions.items() if self._committed.get(p) != offset}

    def committed(self, offsets: dict[str, int]) -> None:
        self._committed |= offsets


if __name__ == "__main__":
    sys.exit(Life(json.loads(sys.argv[1])).run())
