"""`ottla dump`: prints a file of a data directory, a captured frame or a hex string by its construct schema.

Owns the command line and the detection of the input: a file by its name, other bytes by their contents. Exit code 0; 1
with one line on stderr if the input is damaged or not Kafka's, after the part that can be read; 2 for wrong arguments.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from ...broker.metadata import record_values
from ...broker.trace import frames
from ...broker.trace.describe import describe
from ...broker.trace.entries import Entries
from ...broker.trace.tracer import Problems, Stopped, Tracer, quoted
from ...broker.transactions.records import STATE_IDS
from ...protocol.arguments import Parser
from ...protocol.connection import FRAME_BYTES_MAX
from ...protocol.mistakes import complain
from ...protocol.records.schemas import BATCH_V2, CONTROL_KEY, MESSAGE_V0, MESSAGE_V1, RECORD_V2
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.log_dir.metadata_log import SNAPSHOT_SUFFIX
from ..command_line import FOUND_DAMAGE, Write, printing
from .files import Kind, base_offset_of, describe_file, kind_of, plain_name, trace_file

PROGRAM = "ottla dump"
INPUT_BYTES_MAX = FRAME_BYTES_MAX + frames.SIZE_BYTES
_DIGITS = b"0123456789abcdefABCDEF"
_BLANKS = b" \t\n\r\v\f:"
_PROBE_BYTES = 4096  # checked first, so that binary input is not copied in a search for hex


class _Mistake(Exception):
    """The arguments are wrong; the text is one line."""


def dump(arguments: Sequence[str]) -> int:
    parser = Parser(prog=PROGRAM, description="Print bytes of Kafka with names, positions and values.")
    parser.add_argument("thing", metavar="FILE|-|HEX", help="a file, - for stdin, or bytes in hex")
    parser.add_argument("--schema", action="store_true", help="print the schema instead of the values")
    parser.add_argument("--records", action="store_true", help="also print the records inside batches")
    parser.add_argument("--response", metavar="KEY:VERSION", help="the input is a response of this API (key or name)")
    options = parser.parse_args(list(arguments))
    try:
        options.api = None if options.response is None else frames.parse_api(options.response)
    except ValueError as error:
        return complain(PROGRAM, f"--response: {error}")
    try:
        name = _name(options.thing)
        return printing(PROGRAM, lambda write: _dump(options, name, write))
    except (_Mistake, StorageError) as error:
        return complain(PROGRAM, error)


def _name(thing: str) -> str:
    """Returns the name of the input in an error."""
    if thing == "-":
        return "stdin"
    shown = quoted(thing)[1:-1]
    return shown if os.path.lexists(thing) else shown[:32] + ("..." if len(shown) > 32 else "")


def _dump(options: Namespace, name: str, write: Write) -> int:
    problems = Problems()
    try:
        if options.thing != "-" and os.path.lexists(options.thing):
            _file(options, write, problems)
        else:
            _bytes(_from_stdin() if options.thing == "-" else _from_hex(options.thing), options, write, problems)
    except Stopped as stopped:
        problems.add(stopped)
    if problems.first is None:
        return 0
    sys.stdout.flush()
    more = f" (and {problems.count - 1} more)" if problems.count > 1 else ""
    return complain(PROGRAM, f"{name}: {problems.first}{more}", FOUND_DAMAGE)


def _from_pipe(path: str) -> bytes:
    """Reads a named pipe, as of a shell's process substitution, in the way of stdin."""
    try:
        with open(path, "rb") as pipe:
            return _unless_hex(pipe.read(INPUT_BYTES_MAX + 1))
    except OSError as error:
        raise _Mistake(f"cannot read {path}: {error.strerror}") from None


def _from_stdin() -> bytes:
    stdin: TextIO | None = sys.stdin
    if stdin is None:
        raise _Mistake("stdin is closed")
    try:
        return _unless_hex(stdin.buffer.read(INPUT_BYTES_MAX + 1))
    except OSError as error:
        raise _Mistake(f"cannot read stdin: {error.strerror}") from None


def _unless_hex(data: bytes) -> bytes:
    """Decodes hex text, and returns other bytes unchanged. No frame or batch consists of hex digits only."""
    if len(data) > INPUT_BYTES_MAX:
        raise Stopped("0", f"more than {INPUT_BYTES_MAX} bytes: no frame is that long")
    found = _unhex(data)
    return data if found is None else found


def _from_hex(text: str) -> bytes:
    found = _unhex(text.encode("utf-8", "surrogateescape"))
    if found is None:
        raise _Mistake(f"{quoted(text)[1:-1]} is neither a file nor hex")
    return found


def _unhex(text: bytes) -> bytes | None:
    """Decodes hex with optional blanks, colons and 0x prefixes; returns None for other text.

    Without regular expressions, which take fifty times the memory of a long text.
    """
    if not text or text[:_PROBE_BYTES].translate(None, _DIGITS + _BLANKS + b"xX"):
        return None
    parted = b" " + text.translate(bytes.maketrans(_BLANKS, b" " * len(_BLANKS)))
    digits = parted.replace(b" 0x", b" ").replace(b" 0X", b" ").replace(b" ", b"")
    if digits.translate(None, _DIGITS):
        return None
    if len(digits) % 2:
        raise _Mistake("hex with an odd number of digits")
    return bytes.fromhex(digits.decode())


def _file(options: Namespace, write: Write, problems: Problems) -> None:
    path = options.thing
    if os.path.isdir(path):
        raise _Mistake(f"{path} is a directory: expected a file (`ottla formats` reads directories)")
    kind = kind_of(path) if options.api is None else None
    if not os.path.isfile(path):
        return _bytes(_from_pipe(path), options, write, problems)
    with inspect.FileSource(path) as source:
        if kind is None and options.api is None and _begins_with_entry(source):
            kind = Kind.SEGMENT
        if kind is None:
            try:
                data = source.read(0, INPUT_BYTES_MAX + 1)
            except OSError as error:
                raise Stopped("0", f"cannot be read: {error.strerror}") from None
            return _bytes(_unless_hex(data), options, write, problems)
        if options.schema:
            _print_lines(_describe_segment(_topic_of(path)) if kind is Kind.SEGMENT else describe_file(kind), write)
            return
        base_offset = base_offset_of(path) or 0

        def absolute(relative_offset: int) -> str:
            return f" (offset {base_offset + relative_offset})"

        tracer = _tracer(write, source.size, problems, {"relative_offset": absolute})
        if kind is Kind.SEGMENT:
            _segment(source, path, options, tracer)
        else:
            trace_file(kind, source, path, tracer)


def _segment(source: inspect.Source, path: str | None, options: Namespace, tracer: Tracer) -> None:
    title = f"segment {quoted(os.path.basename(path))[1:-1]}" if path else "record batches"
    tracer.line("0", 0, f"{title}, {source.size} bytes")
    Entries(tracer, topic=_topic_of(path), with_records=options.records).all(source, 0, 1)


def _tracer(
    write: Write, size: int, problems: Problems, names: dict[str, Callable[[int], str]] | None = None
) -> Tracer:
    notes: dict[str, Callable[[Any], str]] = {
        "request_api_key": frames.api_name,
        "api_key": frames.api_name,
        "transaction_status": _status,
    }
    notes |= names or {}
    return Tracer(write, max(6, len(str(size)) + 1), names=notes, problems=problems)


def _status(number: int) -> str:
    state = next((state for state, stored in STATE_IDS.items() if stored == number), None)
    return f" ({state.value if state else 'unknown'})"


def _bytes(data: bytes, options: Namespace, write: Write, problems: Problems) -> None:
    """Prints bytes without a known file name: a response with --response, otherwise batches, otherwise requests."""
    tracer = _tracer(write, len(data), problems)
    if options.api is None and _begins_with_entry(inspect.BytesSource(data)):
        if options.schema:
            _print_lines(_describe_segment(None), write)
        else:
            _segment(inspect.BytesSource(data), None, options, tracer)
        return
    tracer.on_records = Entries(tracer, topic=None, with_records=options.records).in_message
    position = 0
    for frame in _frames(data, options):
        if options.schema:
            _print_lines(frames.describe_frame(frame), write)
            return
        position = frames.trace_frame(data, frame, tracer)
    if position < len(data):
        raise Stopped(
            str(position), f"{len(data) - position} bytes that are neither a known request nor record batches"
        )
    if not data:
        raise Stopped("0", "nothing to read")


def _frames(data: bytes, options: Namespace) -> Iterator[frames.Frame]:
    if options.api is not None:
        yield frames.find_response(data, *options.api)
    else:
        yield from frames.find_requests(data)


def _begins_with_entry(source: inspect.Source) -> bool:
    """Returns whether the input begins with a whole batch or message whose CRC is correct."""
    first = next(inspect.entries(source), None)
    return isinstance(first, inspect.BatchFacts) and first.crc_ok is True


def _topic_of(path: str | None) -> str | None:
    """Returns the topic of the partition folder of a file. A metadata snapshot may lie outside of its folder."""
    if path and plain_name(path).endswith(SNAPSHOT_SUFFIX):
        return record_values.METADATA
    key = inspect.partition_of(os.path.basename(os.path.dirname(os.path.abspath(path)))) if path else None
    return key[0] if key else None


def _describe_segment(topic: str | None) -> Iterator[str]:
    yield "segment: entries of these formats, chosen by byte 16 of each (magic)"
    for title, layout in (
        ("message v0 (with a codec the value contains compressed messages)", MESSAGE_V0),
        ("message v1 (with a codec the value contains compressed messages)", MESSAGE_V1),
        ("batch v2", BATCH_V2),
        ("record of a batch v2", RECORD_V2),
        ("key of a control record", CONTROL_KEY),
    ):
        yield f"  {title}"
        yield from describe(layout, 2)
    for part in record_values.schemas_of(topic):
        yield f"  {part.title}"
        for layout in part.layouts:
            yield from describe(layout, 2)


def _print_lines(lines: Iterator[str], write: Write) -> None:
    for line in lines:
        write(line + "\n")
