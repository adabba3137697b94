"""`kafka-broker-api-versions.sh` of the image: the API versions of each broker, as Kafka's tool prints them.

Owns the layout, which is that of Kafka 4: the versions that the broker serves, and whether the tool of the newest
release can use them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...broker.releases.profiles import NEWEST, api_names, profile
from ...client.admin.admin import Admin, Node
from ...client.net.connection import Opening, connect
from ...client.net.errors import ClientError
from ...client.net.options import ClientOptions
from ...protocol.arguments import Parser, add_bootstrap, add_command_config
from ...protocol.mistakes import FAILED, complain
from ...protocol.schema import Versions
from ..command_line import Write, printing, security_options

PROGRAM = "kafka-broker-api-versions"
TIMEOUT_S = 10.0
# Versions of Kafka's tool for APIs that brokers do not advertise to clients: share coordinators, and telemetry.
NOT_ADVERTISED = {
    27: Versions(1, 2),
    **dict.fromkeys((71, 72, 83, 84, 86), Versions(0, 0)),
    **dict.fromkeys((85, 87), Versions(0, 1)),
}


def known_versions() -> dict[int, Versions]:
    """Returns the versions of Kafka's tool of the newest release, by API key."""
    return {**NOT_ADVERTISED, **profile(NEWEST).apis}


def versions_text(versions: Mapping[int, Versions], names: Mapping[int, str], own: Mapping[int, Versions]) -> str:
    """Returns a line for each API of a broker, in parentheses; `own` are the versions of the tool."""
    lines: list[str] = []
    for key in sorted({*versions, *own}):
        label = f"{names[key]}({key})" if key in names else f"UNKNOWN({key})"
        if key not in versions:
            lines.append(f"{label}: UNSUPPORTED")
            continue
        low, high = versions[key]
        text = f"{label}: {low}" if low == high else f"{label}: {low} to {high}"
        if key in own:
            if own[key][1] < low:
                text += " [unusable: node too new]"
            elif high < own[key][0]:
                text += " [unusable: node too old]"
            else:
                text += f" [usable: {min(own[key][1], high)}]"
        lines.append(text)
    return "(\n\t" + ",\n\t".join(lines) + "\n)"


def node_text(node: Node) -> str:
    """Returns a node in the format of Kafka's tool. A broker that serves clients is never fenced."""
    return f"{node.host}:{node.port} (id: {node.node_id} rack: {node.rack or 'null'} isFenced: false)"


async def _print_all(bootstrap: str, options: Mapping[str, Any], write: Write) -> None:
    names, own = api_names(), known_versions()
    async with Admin(bootstrap, default_api_timeout_ms=int(TIMEOUT_S * 1000), **options) as admin:
        nodes = (await admin.describe_cluster()).nodes
    opening = Opening(tls=ClientOptions(**options).tls())
    for node in nodes:
        try:
            # Versions are served before a login.
            connection = await connect(
                node.host, node.port, client_id=PROGRAM, request_timeout_s=TIMEOUT_S, opening=opening
            )
        except ClientError as error:
            write(f"{node_text(node)} -> ERROR: {error}\n")
            continue
        write(f"{node_text(node)} -> {versions_text(connection.versions, names, own)}\n")
        connection.close()
        await connection.wait_closed()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool; returns 0, or 1 with one line on stderr if no broker responds."""
    parser = Parser(prog=PROGRAM, description="Print the API versions of the brokers of a cluster.", allow_abbrev=False)
    add_bootstrap(parser, required=True)
    add_command_config(parser)
    parsed = parser.parse_args(None if arguments is None else list(arguments))
    options = security_options(parser, parsed.command_config)

    def run(write: Write) -> int:
        try:
            asyncio.run(_print_all(parsed.bootstrap_server, options, write))
        except ClientError as error:
            return complain(PROGRAM, error, FAILED)
        return 0

    return printing(PROGRAM, run)


if __name__ == "__main__":
    sys.exit(main())
