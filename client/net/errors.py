"""What the clients raise, and what Kafka says of each error code: may the request be sent again, is metadata stale.

Every error of this package is a `ClientError`. Those that a broker answered are `KafkaError`s with the code; the table
is that of Apache Kafka's own clients (which of its exceptions are retriable, which ask for new metadata).
"""

from __future__ import annotations

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


def error_code(number: int) -> ErrorCode:
    """The code of that number; UNKNOWN_SERVER_ERROR for one that is newer than this client."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def is_retriable(code: int) -> bool:
    """Whether the same request may succeed later."""
    return code in _RETRIABLE


def is_stale_metadata(code: int) -> bool:
    """Whether the answer means that the cluster has changed: ask for metadata before the next try."""
    return code in _STALE_METADATA


class ClientError(Exception):
    """Anything that a client of this package raises. `retriable`: the same call may succeed later."""

    retriable: bool = False


class ClientClosed(ClientError):
    """The client was closed, or is not started."""


class ConfigError(ClientError, ValueError):
    """An option that does not exist, or a value that it cannot have."""


class InvalidRequest(ClientError, ValueError):
    """A value that cannot be written as this request in this version; the text names the field."""


class UnsupportedVersion(ClientError):
    """The broker and this client have no version of that API in common."""


class ConnectionLost(ClientError):
    """No connection, or one that ended before the answer: what was asked may have been done or not."""

    retriable = True


class RequestTimedOut(ConnectionLost):
    """No answer in time. The connection is closed with it, since answers come in order."""


class KafkaError(ClientError):
    """An error that a broker answered.

    `code` is Kafka's, `number` the very number (they differ for a code newer than this client), `message` the broker's
    text or None.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        self.number = int(code)
        self.code = error_code(self.number)
        self.message = message
        self.retriable = self.number in _RETRIABLE
        self.stale_metadata = self.number in _STALE_METADATA
        name = self.code.name if self.code == self.number else "UNKNOWN"
        super().__init__(f"{name} ({self.number})" + (f": {message}" if message else ""))


class NoSuchTopic(KafkaError):
    """The topic does not exist, and did not come into being in time."""

    def __init__(self, topic: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} does not exist")
        self.topic = topic


class MessageTooLarge(KafkaError):
    """One record, or a batch that cannot be made smaller, is larger than a limit of the client or of the topic."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFull(ClientError):
    """No room for the record came free within `max_block_ms`."""

    retriable = True


class DeliveryTimeout(ClientError):
    """The record was given up after `delivery_timeout_ms`. It may be in the log, if it was ever sent."""


class ProducerFailed(ClientError):
    """The producer can send nothing more: all that was not done has failed, and later sends raise this again.

    `topic` and `partition` are where it was seen, None if nowhere.
    """

    topic: str | None = None
    partition: int | None = None


class OutOfOrderSequence(ProducerFailed):
    """The batch right after the last acknowledged one is out of order: records that were acknowledged are gone."""


class UnknownProducer(ProducerFailed):
    """The broker does not know this producer in a partition where it should: acknowledged records may be lost.

    `first_sequence` and `last_sequence` are of the refused batch, `last_acked_offset` is the newest acknowledged record
    of the partition (-1 for none), `log_start_offset` what the broker said (-1 if nothing): the records that may be
    lost are this producer's at or above the one and up to the other.
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
            f"{topic}-{partition} does not know this producer: its records up to offset {last_acked_offset} may be lost"
            f" (log start offset {log_start_offset}); refused were sequences {first_sequence} to {last_sequence}"
        )


class ProducerFenced(ProducerFailed):
    """A newer producer of the same id has taken over; or, to a transactional one, its transaction was timed out."""


class TransactionsUnsupported(ProducerFailed):
    """The brokers have no transactions, or this client and they no version in common: they are there since 0.11."""


class InvalidTransactionState(ClientError):
    """The call does not fit where the producer is: nothing was begun, something else is under way."""


class TransactionFailed(ClientError):
    """The transaction cannot be committed, only aborted; then another may begin. `__cause__` is what came first."""


class TransactionAborted(ClientError):
    """The record was not sent, or it was but will never be seen: its transaction is being aborted."""


class TransactionUnsettled(ClientError):
    """The coordinator did not answer in time. The producer goes on asking: the same call may be made again, and waits
    for that answer. Until then a commit may have happened or not."""

    retriable = True


class IdempotenceUnsupported(ClientError):
    """Idempotence is required, and the topic's message format cannot hold it. `message_format` is None if unknown."""

    def __init__(self, topic: str, message_format: int | None) -> None:
        self.topic = topic
        self.message_format = message_format
        written = "an older format than v2" if message_format is None else f"message format v{message_format}"
        super().__init__(f"topic {topic!r} is written in {written}; idempotence needs v2")
