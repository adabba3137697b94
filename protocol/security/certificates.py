"""Names in certificates. They are read by `cryptography`, which the extra `ottla[security]` installs.

Source: RFC 2253, in the form of Java's X500Principal.
"""

from __future__ import annotations

import re
from typing import Any

_ATTRIBUTES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}


def distinguished_name(certificate: bytes) -> str:
    """Returns the subject of a certificate (DER) as Java's X500Principal.getName() does, in the form of RFC 2253."""
    from cryptography import x509

    return _name(x509.load_der_x509_certificate(certificate).subject)


def names(pem: str) -> tuple[str, set[str]]:
    """Returns the distinguished name and the alternative names of the first certificate of a PEM text."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(pem[pem.index("-----BEGIN CERTIFICATE-----") :].encode())
    try:
        found = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        found = []
    return _name(certificate.subject), {str(one.value) for one in found}


def _name(subject: Any) -> str:
    return ",".join("+".join(_attribute(one) for one in part) for part in reversed(list(subject.rdns)))


def _attribute(attribute: Any) -> str:
    known = _ATTRIBUTES.get(attribute.oid.dotted_string)
    if known is None:  # RFC 2253 shows the DER of such a value
        return f"{attribute.oid.dotted_string}=#{_der(attribute).hex()}"
    escaped = re.sub(r'[,=+<>#;"\\]', r"\\\g<0>", str(attribute.value))
    escaped = re.sub(r"^ +| +$", lambda spaces: "\\ " * len(spaces[0]), escaped)
    return f"{known}={escaped}"


def _der(attribute: Any) -> bytes:
    value = attribute.value if isinstance(attribute.value, bytes) else attribute.value.encode()
    length = len(value)
    if length < 128:
        return bytes([attribute._type.value, length]) + value
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes([attribute._type.value, 0x80 | len(size)]) + size + value
