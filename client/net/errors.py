"""The errors of the clients, and the properties of Kafka's error codes: their kind, caused by stale metadata.

Every error of this package is a `ClientError`. An error code of a broker is a `KafkaError`; its properties are those of
Apache Kafka's own clients (the exception classes of KIP-1050, InvalidMetadataException).
"""

from __future__ import annotations

from enum import Enum

from ...protocol.errors import ErrorCode

_STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_RETRIABLE = _STALE_METADATA | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
}


class ErrorKind(Enum):
    """What an application does about an error (KIP-1050)."""

    RETRIABLE = "retriable"
    """Call again: the client sends the request again."""
    REFRESH_RETRIABLE = "refresh retriable"
    """The same, after the client has found the leader or the coordinator again."""
    ABORTABLE = "abortable"
    """Abort the transaction, then begin it again."""
    APPLICATION_RECOVERABLE = "application recoverable"
    """Close the client and use a new one."""
    INVALID_CONFIGURATION = "invalid configuration"
    """Correct a config, a permission or the data."""
    OTHER = "other"
    """None of these."""


_CONFIGURATION = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
    }
)
_RECOVERABLE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)
_OF_COORDINATORS = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_KINDS: dict[ErrorCode, ErrorKind] = {
    **dict.fromkeys(_RETRIABLE, ErrorKind.RETRIABLE),
    **dict.fromkeys(
        (_STALE_METADATA | _OF_COORDINATORS) - {ErrorCode.UNKNOWN_LEADER_EPOCH}, ErrorKind.REFRESH_RETRIABLE
    ),
    ErrorCode.TRANSACTION_ABORTABLE: ErrorKind.ABORTABLE,
    **dict.fromkeys(_RECOVERABLE, ErrorKind.APPLICATION_RECOVERABLE),
    **dict.fromkeys(_CONFIGURATION, ErrorKind.INVALID_CONFIGURATION),
}


def error_code(number: int) -> ErrorCode:
    """Returns the code of a number; UNKNOWN_SERVER_ERROR for one that is newer than this client."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def is_retriable(code: int) -> bool:
    """Returns whether the same request may succeed later."""
    return code in _RETRIABLE


class ClientError(Exception):
    """Base class of all errors of the clients. `retriable`: the same call may succeed later."""

    kind: ErrorKind = ErrorKind.OTHER

    @property
    def retriable(self) -> bool:
        return self.kind in (ErrorKind.RETRIABLE, ErrorKind.REFRESH_RETRIABLE)


class ClientClosed(ClientError):
    """The client was closed, or is not started."""


class ConfigError(ClientError, ValueError):
    """An unknown option, or an invalid value of an option."""

    kind = ErrorKind.INVALID_CONFIGURATION


class InvalidRequest(ClientError, ValueError):
    """A value that the request cannot express in this version; the text names the field."""


class UnsupportedVersion(ClientError):
    """The broker and this client have no version of that API in common."""

    kind = ErrorKind.INVALID_CONFIGURATION


class ConnectionLost(ClientError):
    """The connection failed or ended before the response: the broker may have processed the request or not."""

    kind = ErrorKind.REFRESH_RETRIABLE


class AuthenticationError(ClientError):
    """TLS failed: the broker's certificate is not trusted or is for another host, or the broker refused the client's.

    A refused login with SASL is a KafkaError with the broker's code and text.
    """

    kind = ErrorKind.INVALID_CONFIGURATION


class RequestTimedOut(ConnectionLost):
    """No response within the timeout. The connection is closed as well, since responses arrive in order."""


class KafkaError(ClientError):
    """An error code in a response.

    `number` is the code as received, `code` its ErrorCode, which is UNKNOWN_SERVER_ERROR for a code newer than this
    client. `message` is the broker's text or None.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        self.number = int(code)
        self.code = error_code(self.number)
        self.message = message
        self.kind = _KINDS.get(self.code, ErrorKind.OTHER)
        self.stale_metadata = self.number in _STALE_METADATA
        name = self.code.name if self.code == self.number else "UNKNOWN"
        super().__init__(f"{name} ({self.number})" + (f": {message}" if message else ""))


class NoSuchTopic(KafkaError):
    """The topic does not exist, and was not created within the timeout."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        self.topic = topic


class MessageTooLarge(KafkaError):
    """A record, or a batch that cannot be split, exceeds a size limit of the client or of the topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFull(ClientError):
    """`buffer_memory` had no room for the record within `max_block_ms`."""

    kind = ErrorKind.RETRIABLE


class DeliveryTimeout(ClientError):
    """The record was not acknowledged within `delivery_timeout_ms`. It may be in the log, if it was sent."""


class ProducerFailed(ClientError):
    """The producer has failed fatally: all unfinished records fail, and later sends raise this error again.

    `topic` and `partition` are those of the failed batch, None without one.
    """

    topic: str | None = None
    partition: int | None = None


class OutOfOrderSequence(ProducerFailed):
    """The batch after the last acknowledged one was out of order: acknowledged records were lost."""


class UnknownProducer(ProducerFailed):
    """The broker has no state of this producer in a partition: acknowledged records may be lost.

    `first_sequence` and `last_sequence` are those of the refused batch. `last_acked_offset` is the offset of the newest
    acknowledged record of the partition (-1 for none), `log_start_offset` that of the response (-1 if unknown): the
    records of this producer from the latter to the former may be lost.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        first_sequence: int,
        last_sequence: int,
        last_acked_offset: int,
        log_start_offset: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence
        self.last_acked_offset = last_acked_offset
        self.log_start_offset = log_start_offset
        super().__init__(
            f"{topic}-{partition} has no state of this producer: its records up to {last_acked_offset} may be lost"
            f" (log start offset {log_start_offset}); sequences {first_sequence} to {last_sequence} were refused"
        )


class ProducerFenced(ProducerFailed):
    """A newer producer with the same id has fenced this one, or its transaction has timed out."""

    kind = ErrorKind.APPLICATION_RECOVERABLE


class TransactionsUnsupported(ProducerFailed):
    """The brokers have no transactions (before Kafka 0.11), or no version in common with this client."""

    kind = ErrorKind.INVALID_CONFIGURATION


class InvalidTransactionState(ClientError):
    """The call is not possible in the state of the transaction, such as a commit without a beginning."""


class TransactionFailed(ClientError):
    """The transaction cannot be committed, only aborted; then another may begin. `__cause__` is the first error."""

    kind = ErrorKind.ABORTABLE


class TransactionAborted(ClientError):
    """The transaction of the record is aborted: it was not sent, or no consumer with read_committed will see it."""


class TransactionUnsettled(ClientError):
    """No response of the coordinator within `max_block_ms`: the transaction may be committed or not.

    The producer repeats the request in the background. The same call may be made again, and waits for its result.
    """

    kind = ErrorKind.RETRIABLE


class IdempotenceUnsupported(ClientError):
    """Idempotence is required, but the topic's message format is below v2. `message_format` is None if unknown."""

    kind = ErrorKind.INVALID_CONFIGURATION

    def __init__(self, topic: str, message_format: int | None) -> None:
        self.topic = topic
        self.message_format = message_format
        written = "an older format than v2" if message_format is None else f"message format v{message_format}"
        super().__init__(f"topic {topic!r} is written in {written}; idempotence needs v2")
