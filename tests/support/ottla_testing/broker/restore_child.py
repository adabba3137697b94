"""A process that restores a snapshot of its data directories and kills itself before the n-th change of a file.

    python restore_child.py SIGNAL N DIRECTORY...

Prints the number of changes if it survives. The test has the states before and after.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

from ottla.broker import Embedded

BEFORE, SINCE = [b"a", b"b"], [b"c"]
CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.utime", "shutil")


def fill(broker: Embedded) -> None:
    """Writes the state that the snapshot has."""
    broker.create_topic("t", partitions=4)
    broker.send_many("t", BEFORE)
    broker.create_topic("early")


def change(broker: Embedded) -> None:
    """Writes later changes."""
    broker.send_many("t", SINCE)
    broker.delete_topic("early")
    broker.create_topic("late", partitions=2)


def contents(broker: Embedded) -> dict[str, list[bytes]]:
    return {
        topic.name: sorted(record.value or b"" for record in broker.records(topic.name)) for topic in broker.topics()
    }


def main(number: int, last: int, folders: Sequence[str]) -> None:
    changes = 0
    is_counting = False

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal changes
        if not is_counting or not event.startswith(CHANGES):
            return
        if not any(str(argument).startswith(tuple(folders)) for argument in arguments[:2]):
            return
        if event == "open" and isinstance(arguments[2], int) and not arguments[2] & (os.O_RDWR | os.O_WRONLY):
            return
        changes += 1
        if changes == last:
            os.kill(os.getpid(), number)
            threading.Event().wait()

    sys.addaudithook(count)
    with Embedded(data_dir=list(folders)) as broker:
        fill(broker)
        snapshot = broker.snapshot()
        change(broker)
        is_counting = True
        broker.restore(snapshot)
        is_counting = False
        print(changes, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
