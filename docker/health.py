"""The image's health check: sends ApiVersions, as clients do first, and exits with 0 if the broker responds.

One file that imports only the standard library, since it is started every second. The addresses are in the file that
the broker writes when it is ready (`tools/image.py`).
"""

import os
import socket
import struct
import sys

READY_FILE = "/tmp/ottla-ready"
TIMEOUT_S = 2.0
TLS_SCHEME = "tls://"
CORRELATION_ID = 7
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)  # version 0, without a client id


def responds(host: str, port: int, has_tls: bool = False) -> bool:
    """Whether a broker at this address responds to ApiVersions without an error.

    One that requires a client's certificate closes the connection after the client's side of the handshake instead.
    """
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        if has_tls:
            return _responds_encrypted(connection)
        return _responds(connection)


def _responds_encrypted(connection: socket.socket) -> bool:
    import ssl  # only here: the check is started every second

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(connection) as encrypted:
        try:
            return _responds(encrypted, if_closed=True)
        except ssl.SSLError:
            return True


def _responds(connection: socket.socket, if_closed: bool = False) -> bool:
    connection.sendall(API_VERSIONS)
    head = b""
    while len(head) < 10:
        part = connection.recv(10 - len(head))
        if not part:
            return if_closed and not head
        head += part
    _, correlation_id, error_code = struct.unpack(">iih", head)
    return correlation_id == CORRELATION_ID and error_code == 0


def main(path: str) -> int:
    """Returns 0 if the broker responds at one of the addresses in the file: a test may have closed the others."""
    try:
        with open(path) as file:
            addresses = file.read().split()
    except OSError:
        print("not ready yet")
        return 1
    for address in addresses:
        host, _, port = address.removeprefix(TLS_SCHEME).rpartition(":")
        try:
            if responds(host.strip("[]"), int(port), address.startswith(TLS_SCHEME)):
                print(f"response from {address}")
                return 0
        except OSError:
            pass
    print(f"no response from {' '.join(addresses)}")
    return 1


if __name__ == "__main__":
    sys.exit(main(os.environ.get("OTTLA_READY_FILE") or READY_FILE))
