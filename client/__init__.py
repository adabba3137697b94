"""A small asyncio client over `ottla.protocol`: producer, transactions, consumer, admin.

Each name is imported on first use, so that a consumer does not import the producer.

    async with Producer(transactional_id="orders") as producer:
        async with producer.transaction():
            await producer.send("orders", b"one")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_EXPORTS = {
    "admin.admin": "Admin",
    "consumer.consumer": "Consumer",
    "consumer.group_offsets": "GroupMetadata",
    "consumer.records": "ConsumerRecord",
    "net.errors": """
        AuthenticationError BufferFull ClientClosed ClientError ConfigError ConnectionLost DeliveryTimeout ErrorKind
        IdempotenceUnsupported InvalidRequest InvalidTransactionState KafkaError MessageTooLarge NoSuchTopic
        OutOfOrderSequence ProducerFailed ProducerFenced RequestTimedOut TransactionAborted TransactionFailed
        TransactionUnsettled TransactionsUnsupported UnknownProducer UnsupportedVersion
    """,
    "net.options": "ClientOptions",
    "producer.producer": "CommittedRecord Producer RecordMetadata",
}
_HOME = {name: home for home, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # the names below are re-exported by `as`

if TYPE_CHECKING:
    from .admin.admin import Admin as Admin
    from .consumer.consumer import Consumer as Consumer
    from .consumer.group_offsets import GroupMetadata as GroupMetadata
    from .consumer.records import ConsumerRecord as ConsumerRecord
    from .net.errors import AuthenticationError as AuthenticationError
    from .net.errors import BufferFull as BufferFull
    from .net.errors import ClientClosed as ClientClosed
    from .net.errors import ClientError as ClientError
    from .net.errors import ConfigError as ConfigError
    from .net.errors import ConnectionLost as ConnectionLost
    from .net.errors import DeliveryTimeout as DeliveryTimeout
    from .net.errors import ErrorKind as ErrorKind
    from .net.errors import IdempotenceUnsupported as IdempotenceUnsupported
    from .net.errors import InvalidRequest as InvalidRequest
    from .net.errors import InvalidTransactionState as InvalidTransactionState
    from .net.errors import KafkaError as KafkaError
    from .net.errors import MessageTooLarge as MessageTooLarge
    from .net.errors import NoSuchTopic as NoSuchTopic
    from .net.errors import OutOfOrderSequence as OutOfOrderSequence
    from .net.errors import ProducerFailed as ProducerFailed
    from .net.errors import ProducerFenced as ProducerFenced
    from .net.errors import RequestTimedOut as RequestTimedOut
    from .net.errors import TransactionAborted as TransactionAborted
    from .net.errors import TransactionFailed as TransactionFailed
    from .net.errors import TransactionsUnsupported as TransactionsUnsupported
    from .net.errors import TransactionUnsettled as TransactionUnsettled
    from .net.errors import UnknownProducer as UnknownProducer
    from .net.errors import UnsupportedVersion as UnsupportedVersion
    from .net.options import ClientOptions as ClientOptions
    from .producer.producer import CommittedRecord as CommittedRecord
    from .producer.producer import Producer as Producer
    from .producer.producer import RecordMetadata as RecordMetadata


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
