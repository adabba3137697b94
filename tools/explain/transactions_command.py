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


def explain_transactions(asked: Namespace) -> int:
    """The exit code."""
    if asked.bootstrap_server is not None:
        from .transactions_of_broker import Cannot, ask

        try:
            seen, coordinators = ask(asked.bootstrap_server, asked.topic, asked.partition, asked.transactional_id)
        except Cannot as error:
            return complain(PROGRAM, error)
        report = Report({"bootstrap": asked.bootstrap_server}, seen, coordinators, asked)
    else:
        try:
            coordinators = read_directory(asked.directory)
            found = find(asked.directory, asked.topic, asked.partition)
        except StorageError as error:
            return complain(PROGRAM, error)
        seen = [SeenFiles(files, asked.directory, coordinators) for files in found]
        report = Report({"directory": os.path.abspath(asked.directory)}, seen, coordinators, asked)
    print_it = transactions_output.as_json if asked.json else transactions_output.as_text
    code = printing(PROGRAM, lambda write: print_it(report, write))
    damage = next((one.damage for one in seen if one.damage is not None), None)
    if damage is not None and not code:
        complain(PROGRAM, f"not read to its end: {damage}")
        return FOUND_DAMAGE
    return code
