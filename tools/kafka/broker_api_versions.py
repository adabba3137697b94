"""`kafka-broker-api-versions.sh` of the image: what each broker of a cluster serves, as Kafka's tool prints it.

Owns the layout, that of Kafka 4: what the tool of the newest release knows, "usable" of a broker by it, and what it
misses there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...broker.config.sources import read_properties_file
from ...broker.releases.profiles import NEWEST, api_names, profile
from ...client.admin.admin import Admin, Node
from ...client.net.connection import connect
from ...client.net.errors import ClientError
from ...protocol.arguments import Parser, add_bootstrap
from ...protocol.schema import Versions
from ..command_line import printing

PROGRAM = "kafka-broker-api-versions"
TIMEOUT_S = 10.0
# Kafka's tool knows these, too, of which brokers tell no client, or only some: between coordinators, and telemetry.
NOT_ADVERTISED = {
    27: Versions(1, 2),
    71: Versions(0, 0),
    72: Versions(0, 0),
    83: Versions(0, 0),
    84: Versions(0, 0),
    85: Versions(0, 1),
    86: Versions(0, 0),
    87: Versions(0, 1),
}


def known_versions() -> dict[int, Versions]:
    """What Kafka's tool of the newest release knows, by API key."""
    return {**NOT_ADVERTISED, **profile(NEWEST).apis}


def versions_text(versions: Mapping[int, Versions], names: Mapping[int, str], own: Mapping[int, Versions]) -> str:
    """The APIs of a broker by number, one a line in brackets; `own` are the versions that this side knows."""
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
    """A node in Kafka's words; a broker that serves clients is never fenced."""
    return f"{node.host}:{node.port} (id: {node.node_id} rack: {node.rack or 'null'} isFenced: false)"


async def _print_all(bootstrap: str, write: Callable[[str], object]) -> int:
    names, own = api_names(), known_versions()
    async with Admin(bootstrap, default_api_timeout_ms=int(TIMEOUT_S * 1000)) as admin:
        nodes = (await admin.describe_cluster()).nodes
    for node in nodes:
        try:
            connection = await connect(node.host, node.port, client_id=PROGRAM, request_timeout_s=TIMEOUT_S)
        except ClientError as error:
            write(f"{node_text(node)} -> ERROR: {error}\n")
            continue
        write(f"{node_text(node)} -> {versions_text(connection.versions, names, own)}\n")
        connection.close()
        await connection.wait_closed()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The tool: 0, or 1 with one line on stderr where no broker answers."""
    parser = Parser(prog=PROGRAM, description="What the brokers of a cluster serve.", allow_abbrev=False)
    add_bootstrap(parser, required=True)
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="read, and checked for what is not served")
    parsed = parser.parse_args(None if arguments is None else list(arguments))
    check_command_config(parser, parsed.command_config)

    def run(write: Callable[[str], object]) -> int:
        try:
            return asyncio.run(_print_all(parsed.bootstrap_server, write))
        except ClientError as error:
            print(f"{PROGRAM}: {error}", file=sys.stderr)
            return 1

    return printing(PROGRAM, run)


def check_command_config(parser: Parser, file: Path | None) -> None:
    """Ends the command when the properties of `--command-config` ask for what the tools cannot do."""
    from ...broker.errors import ConfigError

    if file is None:
        return
    try:
        protocol = read_properties_file(file).get("security.protocol", "PLAINTEXT")
    except ConfigError as error:
        parser.error(str(error))
    if protocol.strip().upper() != "PLAINTEXT":
        parser.error(f"--command-config {file}: security.protocol {protocol} is not supported, only PLAINTEXT")


if __name__ == "__main__":
    sys.exit(main())
