"""Stands in for the ZooKeeper of older images: listens on its port, for which some clients wait, and sends nothing.

`zookeeper-server-start FILE` runs it; the broker needs none.
"""

import socket
import sys

CLIENT_PORT = 2181


def port_of(text: str) -> int:
    """Returns the `clientPort` of a zookeeper.properties."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "clientPort" and value.strip().isdecimal():
            return int(value)
    return CLIENT_PORT


def main(path: str) -> None:
    with open(path) as file:
        port = port_of(file.read())
    with socket.create_server(("", port)) as server:
        while True:
            server.accept()[0].close()


if __name__ == "__main__":
    main(sys.argv[1])
