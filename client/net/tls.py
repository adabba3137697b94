"""The meaning of a TLS handshake that failed, for the client.

As in Kafka's SslTransportLayer a failed handshake is fatal, but a connection that ends in the middle of one is
retriable.
"""

from __future__ import annotations

import ssl

from .errors import AuthenticationError, ClientError, ConnectionLost

SHUTDOWN_S = 1.0
"""The longest wait for the broker's end of TLS after ours."""
_WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_NOT_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_ABOUT_CERTIFICATE = ("HANDSHAKE_FAILURE", "UNKNOWN_CA", "ACCESS_DENIED")


def handshake_error(host: str, port: int, error: OSError) -> ClientError:
    """Returns the error of a handshake that failed: AuthenticationError, or ConnectionLost if the broker ended it."""
    where = f"{host}:{port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if error.verify_code in _WRONG_HOST:
            text = f"TLS: the certificate of {where} is for another host: {why}"
            return AuthenticationError(f"{text}; an empty ssl.endpoint.identification.algorithm accepts it")
        text = f"TLS: the certificate of {where} is not trusted: {why}"
        return AuthenticationError(f"{text}; ssl.truststore.location names the trusted ones")
    why: str = getattr(error, "reason", None) or ""
    ended = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError)
    if ended or not isinstance(error, ssl.SSLError) or "UNEXPECTED_EOF" in why:
        text = f"{where}: closed by the broker during the TLS handshake"
        hint = "a listener without TLS does so, or one that refuses the client's certificate"
        return ConnectionLost(f"{text}; {hint}: check security.protocol and ssl.keystore.location")
    if any(one in why for one in _NOT_TLS):
        return AuthenticationError(f"TLS: {where} sends no TLS: set security.protocol to that of the listener")
    _, is_alert, alert = why.partition("ALERT_")
    if not is_alert:
        return AuthenticationError(f"TLS: the handshake with {where} failed: {_words(why) or error}")
    text = f"TLS: {where} refused the handshake: {_words(alert)}"
    if "CERTIFICATE" in alert or alert in _ABOUT_CERTIFICATE:
        text += "; it may require a certificate of the client that it trusts: ssl.keystore.location"
    return AuthenticationError(text)


def _words(reason: str) -> str:
    return reason.replace("_", " ").lower()
