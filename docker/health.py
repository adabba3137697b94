"""The image's health check: asks the broker for its versions, as clients do first; exit code 0 if it answers.

Alone and without imports beyond the standard library, as it is started again and again. Where to ask is in the file
that the broker writes when it is ready (`tools/image.py`).
"""

import os
import socket
import struct
import sys

READY_FILE = "/tmp/ottla-ready"
TIMEOUT_S = 2.0
CORRELATION_ID = 7
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, CORRELATION_ID, -1)  # version 0, without a client id


def answers(host: str, port: int) -> bool:
    """Whether a broker there answers ApiVersions without an error."""
    with socket.create_connection((host, port), TIMEOUT_S) as connection:
        connection.sendall(API_VERSIONS)
        head = b""
        while len(head) < 10:
            part = connection.recv(10 - len(head))
            if not part:
                return False
            head += part
    _, correlation_id, error_code = struct.unpack(">iih", head)
    return correlation_id == CORRELATION_ID and error_code == 0


def main(path: str) -> int:
    """0 if the broker answers at one of the addresses in the file: a test may have closed the others."""
    try:
        with open(path) as file:
            addresses = file.read().split()
    except OSError:
        print("not ready yet")
        return 1
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            if answers(host.strip("[]"), int(port)):
                print(f"answers at {address}")
                return 0
        except OSError:
            pass
    print(f"no answer at {' '.join(addresses)}")
    return 1


if __name__ == "__main__":
    sys.exit(main(os.environ.get("OTTLA_READY_FILE") or READY_FILE))
