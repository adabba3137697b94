"""Real clients in the control plane and `ottla ctl`: members of a group with their assignment, and producers."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.ctl_runs import ctl_lines

CONFIGS = {"group.initial.rebalance.delay.ms": "0"}


async def test_group_and_producer_of_real_clients_are_shown(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=CONFIGS, files=MemoryFiles(lambda: 0)) as (broker, api):
        await api.call("POST", "/topics", {"name": "t", "partitions": 2})
        bootstrap = f"127.0.0.1:{broker.ports[0]}"
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for value in (b"a", b"\xff", b"c"):
                await producer.send_and_wait("t", value, partition=0, headers=[("h", b"\xfe")])
        records = (await api.call("GET", "/topics/t/records"))["records"]
        assert [record["value"] for record in records] == ["a", {"base64": "/w=="}, "c"]
        assert records[0]["headers"] == [{"name": "h", "value": {"base64": "/g=="}}]
        (known,) = (await api.call("GET", "/producers?topic=t"))["producers"]
        assert (known["topic"], known["partition"], known["last_sequence"]) == ("t", 0, 2)
        row = (await ctl_lines(api, "producers"))[1].split()
        assert row[:5] == ["t", "0", str(known["producer_id"]), "0", "2"] and row[-1] == "-"

        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=bootstrap,
            group_id="a/b",
            client_id="reader",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            seen = await consumer.getone()
            await consumer.commit()
            group = await api.call("GET", "/groups/a%2Fb")
            assert (group["state"], group["lag"], group["protocol_type"]) == ("Stable", 2, "consumer")
            (member,) = group["members"]
            assert member["assignment"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
            assert (member["client_id"], member["topics"], group["leader"]) == ("reader", ["t"], member["member_id"])
            committed = [(one["topic"], one["partition"], one["offset"], one["lag"]) for one in group["offsets"]]
            assert committed == [("t", 0, seen.offset + 1, 2), ("t", 1, 0, 0)]
            assert (await api.call("GET", "/groups"))["groups"] == [group]
            assert (await ctl_lines(api, "groups"))[1] == f"a/b Stable {group['generation']} 1 2"
            lines = await ctl_lines(api, "groups", "show", "a/b")
            assert lines[4].startswith("reader-") and lines[4].endswith("10000 t-0,t-1")
            assert lines[7].startswith("t 0 1 0 3 2")

            await api.call("POST", "/clock/freeze")
            await api.call("POST", "/clock/advance", {"ms": 3_600_000, "keep_members": True})
            assert (await api.call("GET", "/groups/a%2Fb"))["members"] == [member]
            await api.call("POST", "/clock/advance", {"ms": 3_600_000})
            left = (await api.call("GET", "/groups/a%2Fb"))["members"]
            assert all(one["member_id"] != member["member_id"] for one in left)
