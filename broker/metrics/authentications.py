"""Outcomes of authentications, which are counted by listener. The names are those of Kafka's Selector."""

from __future__ import annotations

SUCCESSFUL, FAILED = "successful_authentication", "failed_authentication"
RENEWED, NOT_RENEWED = "successful_reauthentication", "failed_reauthentication"
EXPIRED = "expired_connections_killed"
AUTHENTICATIONS = {
    SUCCESSFUL: "Connections that were authenticated, by TLS or SASL.",
    FAILED: "Connections that were closed because their authentication had failed.",
    RENEWED: "Sessions that clients have renewed (KIP-368).",
    NOT_RENEWED: "Connections that were closed because their session could not be renewed.",
    EXPIRED: "Connections that were closed because their session was over.",
}
"""Outcomes of authentications with their descriptions."""
