"""The words for the security of a broker for tests, with the protocol of its listeners by Kafka's name.

`broker/testing/security.py` carries them out.
"""

from __future__ import annotations

PLAINTEXT = "plaintext"
PROTOCOLS = {
    PLAINTEXT: "PLAINTEXT",
    "ssl": "SSL",
    "mtls": "SSL",
    "sasl_plaintext": "SASL_PLAINTEXT",
    "sasl_ssl": "SASL_SSL",
    "oauth_plaintext": "SASL_PLAINTEXT",
    "oauth_ssl": "SASL_SSL",
}
