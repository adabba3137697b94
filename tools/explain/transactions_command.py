"""`ottla explain --transactions`: the transactions of a data directory or of a broker, as text or as JSON."""

from __future__ import annotations

import os
from argparse import Namespace

from ...broker.replica.producer_log import find
from ...protocol.mistakes import complain
from ...storage.errors import StorageError
from ..command_line import FOUND_DAMAGE, printing
from . import transactions_output
from .coordinators import read_directory
from .transactions import Report, SeenFiles

PROGRAM = "ottla explain"


def explain_transactions(arguments: Namespace) -> int:
    """Prints the transactions of a data directory or of a cluster, and returns the exit code."""
    if arguments.bootstrap_server is not None:
        from .transactions_of_broker import Cannot, fetch_transactions

        try:
            seen, coordinators = fetch_transactions(
                arguments.bootstrap_server,
                arguments.topic,
                arguments.partition,
                arguments.transactional_id,
                arguments.security,
            )
        except Cannot as error:
            return complain(PROGRAM, error)
        report = Report({"bootstrap": arguments.bootstrap_server}, seen, coordinators, arguments)
    else:
        try:
            coordinators = read_directory(arguments.directory)
            found = find(arguments.directory, arguments.topic, arguments.partition)
        except StorageError as error:
            return complain(PROGRAM, error)
        seen = [SeenFiles(files, arguments.directory, coordinators) for files in found]
        report = Report({"directory": os.path.abspath(arguments.directory)}, seen, coordinators, arguments)
    print_it = transactions_output.as_json if arguments.json else transactions_output.as_text
    code = printing(PROGRAM, lambda write: print_it(report, write))
    damage = next((one.damage for one in seen if one.damage is not None), None)
    if damage is not None and not code:
        complain(PROGRAM, f"log read up to the damage only: {damage}")
        return FOUND_DAMAGE
    return code
