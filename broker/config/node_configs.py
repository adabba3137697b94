"""Configs of single nodes: `node.<id>.<config>` sets a config for one of several nodes in this process.

Owns the notation and the rule which configs may differ between nodes. Those are the configs that the broker reads for
the node that received a request or a connection, throttles of replication, and all configs without effect. The others
belong to what the nodes share: logs, coordinators, quotas and the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ...protocol.named import NamedTuple
from ..errors import ConfigError

_OF_NODE = re.compile(r"node\.(0|[1-9][0-9]{0,9})\.(.+)")

MAY_DIFFER = frozenset(
    """
    auto.create.topics.enable broker.rack fetch.max.bytes max.connection.creation.rate
    max.connections max.connections.per.ip max.connections.per.ip.overrides max.request.partition.size.limit
    replica.selector.class socket.listen.backlog.size socket.receive.buffer.bytes socket.request.max.bytes
    leader.replication.throttled.rate follower.replication.throttled.rate
    replica.alter.log.dirs.io.max.bytes.per.second socket.send.buffer.bytes transaction.partition.verification.enable
    connection.failed.authentication.delay.ms connections.max.reauth.ms sasl.enabled.mechanisms sasl.jaas.config
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.server.max.receive.size ssl.allow.dn.changes ssl.allow.san.changes ssl.cipher.suites ssl.client.auth
    ssl.enabled.protocols ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location
    ssl.keystore.password ssl.keystore.type ssl.principal.mapping.rules ssl.truststore.certificates
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """.split()
)
"""The configs with an effect that may differ between nodes."""


class NodeConfig(NamedTuple):
    """The name of a config of one node, in its parts."""

    node_id: int
    name: str


def of_node(name: str) -> NodeConfig | None:
    """Returns the parts of a name such as `node.1.broker.rack`, or None if it is not the name of a node's config."""
    match = _OF_NODE.fullmatch(name)
    return None if match is None else NodeConfig(int(match[1]), match[2])


def check_differs(full_name: str, name: str, acted_on: Collection[str]) -> None:
    """Raises ConfigError unless the config `name` may differ between nodes. `full_name` is for the message; `acted_on`
    are the configs with an effect.
    """
    if name in acted_on and name not in MAY_DIFFER:
        raise ConfigError(f"{full_name}: {name} cannot differ between nodes, which share one log store: set {name}")


def check_nodes(configs: Mapping[int, Mapping[str, str]], ids: Collection[int]) -> None:
    """Raises ConfigError if `configs`, by node id, has a node that is not in `ids`."""
    for node_id, texts in configs.items():
        if node_id not in ids:
            listed = ",".join(map(str, ids))
            raise ConfigError(f"node.{node_id}.{next(iter(texts))}: there is no node {node_id}, the nodes are {listed}")
