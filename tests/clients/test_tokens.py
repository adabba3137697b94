"""Delegation tokens as in their guide: a broker in a process of its own, the program of the guide, and the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from ottla_testing.snippets import SNIPPETS

COMMAND = [sys.executable, "-m", "ottla.tools"]
LOGIN = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="ann-secret";
"""


def test_guide_works_as_written(tmp_path: Path) -> None:
    """`docs/guides/delegation-tokens.md`, with free ports."""
    configs, login = tmp_path / "secured.properties", tmp_path / "login.properties"
    configs.write_text(re.sub(r":909[23]", ":0", (SNIPPETS / "clients" / "sasl.properties").read_text()))
    login.write_text(LOGIN)
    serving = [*COMMAND, "serve", "--config", str(configs), "--data-dir", str(tmp_path / "data")]
    serving += ["--override", "delegation.token.secret.key=change-me"]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
        assert broker.stdout is not None
        _, secured = (broker.stdout.readline().split()[-1] for _ in range(2))
        code = (SNIPPETS / "clients" / "login_token.py").read_text().replace("127.0.0.1:9093", secured)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

        def tokens(*arguments: str) -> list[dict[str, str]]:
            command = [*COMMAND, "delegation-tokens", *arguments, "--json", "--bootstrap-server", secured]
            printed = subprocess.run([*command, "--command-config", str(login)], capture_output=True, check=True)
            return json.loads(printed.stdout)["tokens"]

        created = tokens("--create", "--renewer-principal", "User:joe")
        described = tokens("--describe")
        broker.terminate()
    assert done.stdout == "a token of User:ann\n", done.stderr
    assert len(described) == 2 and created[0] in described
    assert [token["owner"] for token in described] == ["User:ann", "User:ann"]
