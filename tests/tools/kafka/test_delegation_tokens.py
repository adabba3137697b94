"""ottla delegation-tokens with a broker: its output, as text and JSON, and its errors."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.tools.kafka.delegation_tokens import delegation_tokens
from ottla_testing.broker.delegating import CONFIGS, DAY_MS
from ottla_testing.broker.harness import Broker, running
from ottla_testing.each import each

Ottla = Callable[..., Awaitable[tuple[int, str, str]]]
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
HEADINGS = (
    "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS                  "
    "ISSUEDATE       EXPIRYDATE      MAXDATE        "
)


@pytest.fixture
def ottla(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ottla:
    """Runs the command with a broker, as `ann`; returns (exit code, stdout, stderr)."""
    login = tmp_path / "login.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="ann" password="p";\n'
    )

    async def run(broker: Broker, *arguments: str, config: bool = True) -> tuple[int, str, str]:
        given = ["--bootstrap-server", f"127.0.0.1:{broker.ports[config]}", *arguments]
        given += ["--command-config", str(login)] if config else []
        code = await asyncio.to_thread(delegation_tokens, given)
        out, err = capsys.readouterr()
        return code, out, err

    return run


async def parsed(ottla: Ottla, broker: Broker, *arguments: str) -> Any:
    code, out, err = await ottla(broker, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def date(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(ms // 1000))


async def test_output_is_that_of_kafkas_tool(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path / "data", overrides=CONFIGS) as broker:
        now_ms = broker.clock.now_ms()
        issued, expiry, end = date(now_ms), date(now_ms + DAY_MS), date(now_ms + 7 * DAY_MS)
        code, out, err = await ottla(
            broker, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
        )
        assert (code, err) == (0, "")
        match = re.fullmatch(
            r"Calling create token operation with renewers :\[User:bob\] , max-life-time-period :-1\n"
            r"Created delegation token with tokenId : (\S{22})\n"
            rf"\n{re.escape(HEADINGS)}\n"
            r"\n(\S{22}) (\S{88}) User:ann        User:ann        \[User:bob\] {16}(.{16}) (.{16}) (.{16})\n",
            out,
        )
        assert match is not None, out
        assert (match[1], match[4], match[5], match[6]) == (match[2], issued, expiry, end)
        table = out.partition("\n\n")[2]
        hmac = match[3]
        assert await ottla(broker, "--describe") == (
            0,
            f"Calling describe token operation for current user.\nTotal number of tokens : 1\n{table}",
            "",
        )
        assert await ottla(broker, "--describe", "--owner-principal", "User:dan", "--owner-principal", "User:eve") == (
            0,
            "Calling describe token operation for owners: [User:dan, User:eve]\n"
            f"Total number of tokens : 0\n{HEADINGS}\n",
            "",
        )
        assert await ottla(broker, "--renew", "--hmac", hmac, "--renew-time-period", "60000") == (
            0,
            f"Calling renew token operation with hmac :{hmac} , renew-time-period :60000\n"
            f"Completed renew operation. New expiry date : {date(now_ms + 60_000)}\n",
            "",
        )
        assert await ottla(broker, "--expire", "--hmac", hmac) == (
            0,
            f"Calling expire token operation with hmac :{hmac} , expire-time-period :-1\n"
            f"Completed expire operation. New expiry date : {date(now_ms)}\n",
            "",
        )
        code, out, err = await ottla(broker, "--expire", "--hmac", hmac)
        assert (code, err) == (1, "ottla delegation-tokens: DELEGATION_TOKEN_NOT_FOUND (62)\n")


async def test_json(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path / "data", overrides=CONFIGS) as broker:
        now_ms = broker.clock.now_ms()
        created = await parsed(
            ottla, broker, "--create", "--owner-principal", "User:bob", "--renewer-principal", "User:ann"
        )
        (token,) = created["tokens"]
        hmac = token["hmac"]
        assert token == {
            "token_id": token["token_id"],
            "hmac": hmac,
            "owner": "User:bob",
            "requester": "User:ann",
            "renewers": ["User:ann"],
            "issue_ms": now_ms,
            "expiry_ms": now_ms + DAY_MS,
            "max_ms": now_ms + 7 * DAY_MS,
        }
        assert await parsed(ottla, broker, "--describe", "--owner-principal", "User:bob") == created
        assert await parsed(ottla, broker, "--renew", "--hmac", hmac) == {"expiry_ms": now_ms + DAY_MS}
        expiry = ("--expire", "--hmac", hmac, "--expiry-time-period", "5")
        assert await parsed(ottla, broker, *expiry) == {"expiry_ms": now_ms + 5}


async def test_connection_without_a_login_is_refused(tmp_path: Path, ottla: Ottla) -> None:
    async with running(tmp_path / "data", overrides=CONFIGS) as broker:
        for action in (["--create"], ["--renew", "--hmac", "eA=="], ["--expire", "--hmac", "eA=="], ["--describe"]):
            code, out, err = await ottla(broker, *action, config=False)
            text = "ottla delegation-tokens: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64)\n"
            assert (code, out, err) == (1, "", text)


@each(
    ("line", "message"),
    [
        ("", "exactly one action is needed: --create, --renew, --expire or --describe"),
        ("--create --describe", "exactly one action is needed"),
        ("--create --hmac eA==", "--create cannot be combined with --hmac"),
        ("--renew --hmac eA== --owner-principal User:a", "--renew cannot be combined with --owner-principal"),
        ("--expire --hmac eA== --renew-time-period 0", "--expire cannot be combined with --renew-time-period"),
        ("--describe --max-life-time-period 1", "--describe cannot be combined with --max-life-time-period"),
        ("--renew", "--renew needs --hmac"),
        ("--expire --hmac !", "--hmac is not in Base64"),
        ("--create --renewer-principal bob", "principalType:principalName but got bob"),
        ("--describe --owner-principal :bob", "principalType:principalName but got :bob"),
        ("--create --max-life-time-period 9223372036854775808", "--max-life-time-period is out of range"),
        ("--create --max-life-time-period soon", "invalid int value"),
    ],
)
def test_wrong_arguments_are_one_line(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        delegation_tokens(["--bootstrap-server", "127.0.0.1:1", *line.split()])
    out, err = capsys.readouterr()
    assert (end.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ottla delegation-tokens: ") and message in err
