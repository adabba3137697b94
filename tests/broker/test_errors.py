"""The table of errors is complete: every exception of any module has a code, or a reason why it needs none."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, cast

import structlog

import ottla.broker
import ottla.protocol
import ottla.storage
import ottla.tools
from ottla.broker import errors
from ottla.broker.context import RequestContext
from ottla.broker.errors import CODES, Refused, code_of
from ottla.broker.logs import get_logger
from ottla.broker.network.request_runner import HandlerRunner, failure
from ottla.broker.network.route import Route
from ottla.protocol.compiler import build
from ottla.protocol.errors import ErrorCode, ProtocolViolation
from ottla.protocol.schema import empty_value
from ottla_testing.broker.routes import ROUTES
from ottla_testing.each import each

ELSEWHERE = {
    "Refused": "names its own code",
    "Unverified": "names its own code",
    "ProtocolViolation": "closes the connection",
    "StartupError": "ends the start, with one line",
    "TooManyItems": "becomes a MalformedMessage where it is raised",
    "Stopped": "is shown where the bytes stop making sense",
    "DamagedFile": "puts the file aside, or ends the command with one line",
    "NoName": "closes the connection in its handshake",
    "Dropped": "closes the connection, as Kafka does where an exchange of GSSAPI breaks",
    "Unnamed": "closes the connection: what the client proved has no name of a user",
    "GssFailure": "becomes SASL_AUTHENTICATION_FAILED or Dropped where the library refuses",
    "TokenRefused": "becomes the error token of OAUTHBEARER where it is raised",
    "StoreError": "becomes a ConfigError where it is raised",
    "SaslError": "becomes SASL_AUTHENTICATION_FAILED where it is raised, with Kafka's text",
    "UnknownRelease": "ends the start, with one line",
    "BadPattern": "is refused with INVALID_REGULAR_EXPRESSION where it is raised",
    "Cannot": "ends the command, with one line",
    "Diverged": "ends the copy of a partition, with one line",
    "CleaningFailed": "ends a pass of the log cleaner, with one line",
    "NotAdded": "leaves out a topic, with one line",
    "_Mistake": "ends the command, with one line",
    "CannotDo": "ends the command, with one line",
    "Unreachable": "ends the command, with one line",
    "Wrong": "ends the command, with one line",
    "ImageError": "ends the start of the image, with one line",
    "NotLed": "names its own code",
    "_Over": "ends a cancelled move between log directories, without a message",
    "Cut": "closes the connection, as a fault rule requires",
    "OperationError": "is reported to the caller of the admin API, not to a Kafka client",
    "CannotReset": "is an HTTP response of the control plane, or ends the command, with one line",
    "Undecodable": "of a decoder: is raised in the test that reads records; of records: see CODES",
    "NotFound": "is reported to the caller of the admin API, not to a Kafka client",
    "AlreadyExists": "is reported to the caller of the admin API, not to a Kafka client",
    "BrokerFailed": "is reported to the caller of the admin API, not to a Kafka client",
    "UnknownFault": "is reported to the caller of the admin API, not to a Kafka client",
    "Unavailable": "is reported to the caller of the admin API, not to a Kafka client",
    "_Full": "ends a listing of a page, with a note",
    "Full": "ends a recording, with one line",
    "NoRecording": "ends the command, with one line",
    "_Unknown": "becomes the reason beside a frame that cannot be decoded",
    "DecodeError": "becomes the reason that the page shows beside the raw bytes",
    "SchemaError": "ends the start, with one line, or is raised to the test that starts an embedded broker",
    "RecordError": "ends the start, with one line, or is reported to the caller of the admin API",
    "CannotRun": "ends the command, with one line",
    "CannotTranslate": "becomes a request that is not sent, and is listed as such",
    "NotSent": "becomes a request that is not sent, and is listed as such",
    "Closed": "becomes an exchange without a response, and is listed as such",
    "TopologyError": "is reported to the caller of the admin API, not to a Kafka client",
    "_Failed": "is a status in the response to StreamsGroupHeartbeat",
    "NoDeadLetterQueue": "is logged, and the records are archived without it",
    "Refusal": "is an HTTP response of the control plane",
}


def exceptions() -> set[type[Exception]]:
    found: set[type[Exception]] = set()
    for package in (ottla.protocol, ottla.storage, ottla.broker, ottla.tools):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.name:
                    found.add(value)
    return found


def test_every_exception_has_an_error_code() -> None:
    found = exceptions()
    assert len(found) > 12
    without = {cls.__name__ for cls in found if cls not in CODES}
    assert without == set(ELSEWHERE)
    assert set(CODES) <= found


def test_error_codes_are_kafkas() -> None:
    expected = {
        "ConfigError": 40,
        "CorruptRecords": 2,
        "DamagedEntry": 2,
        "DecompressedTooLarge": 87,
        "DirectoryFailed": 56,
        "DirectoryLocked": 56,
        "DuplicateSequence": 46,
        "FencedCoordinator": 52,
        "FencedProducer": 47,
        "InvalidRecords": 87,
        "InvalidTimestamps": 32,
        "InvalidTransactionState": 48,
        "MalformedMessage": 42,
        "MessageTooLarge": 10,
        "OffsetOutOfRange": 1,
        "OutOfOrderSequence": 45,
        "OverflowingSize": -1,
        "ProducerRefused": 45,
        "RecordAboveLimit": 87,
        "RecordListTooLarge": 18,
        "StorageError": 56,
        "UnknownBatches": 2,
        "Undecodable": -1,
        "UnknownProducer": 59,
        "UnsupportedCodec": 76,
        "UnsupportedForFormat": 43,
        "Unwritable": -1,
        "WrongBatches": 87,
    }
    assert {cls.__name__: int(code) for cls, code in CODES.items()} == expected


def test_unexpected_error_is_logged_with_its_stack() -> None:
    get_logger()
    with structlog.testing.capture_logs() as events:
        assert code_of(Refused(ErrorCode.INVALID_REQUEST)) == 42
        assert not events
        error = KeyError("x")
        assert code_of(error) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [(event["log_level"], event["exc_info"]) for event in events] == [("error", error)]


@each("route", ROUTES.values())
def test_failing_handler_returns_an_error_or_closes(route: Route) -> None:
    """In every version; without a field for an error of the whole, the connection closes."""
    response_class = getattr(importlib.import_module(route.request_class.__module__), f"{route.name}Response")
    for version in route.versions.range():
        assert build(empty_value(response_class), version) is not None
        runner = _runner(route, version)
        runner.close()
        try:
            parts = failure(runner, Refused(ErrorCode.INVALID_REQUEST))
        except ProtocolViolation:
            field = response_class._fields.get("error_code")
            assert field is None or version not in field.versions
        else:
            assert b"".join(parts)


def test_unwritable_response_returns_unknown_server_error() -> None:
    route = ROUTES[22]
    get_logger()
    with structlog.testing.capture_logs() as events:
        runner = _runner(route, 2)
        runner.start(cast(Any, None))
        parts = runner.parts()
    assert len(events) == 1
    response = importlib.import_module(route.request_class.__module__).InitProducerIdResponse
    from ottla.protocol.compiler import parse

    assert parse(response, 2, b"".join(parts)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def _runner(route: Route, version: int) -> HandlerRunner:
    context = RequestContext(cast(Any, None), version, 0, "", cast(Any, None))
    return HandlerRunner(_unwritable(), route, b"", context)


async def _unwritable() -> Any:
    from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdResponse

    return InitProducerIdResponse(error_code=0, producer_id=1 << 70, producer_epoch=0)


def test_refused_has_its_code_and_message() -> None:
    refused = errors.Refused(ErrorCode.INVALID_REQUEST, "why")
    assert (str(refused), refused.message) == ("why", "why")
    assert str(errors.Refused(ErrorCode.INVALID_REQUEST)) == "INVALID_REQUEST"
