"""A small asyncio client over `ottla.protocol`: producer, transactions, consumer, admin.

Names are imported when first used.

    async with Producer(transactional_id="orders") as producer:
        async with producer.transaction():
            await producer.send("orders", b"one")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOME = {
    "Admin": "admin.admin",
    "BufferFull": "net.errors",
    "ClientClosed": "net.errors",
    "ClientError": "net.errors",
    "ClientOptions": "net.options",
    "CommittedRecord": "producer.producer",
    "ConfigError": "net.errors",
    "ConnectionLost": "net.errors",
    "Consumer": "consumer.consumer",
    "ConsumerRecord": "consumer.records",
    "DeliveryTimeout": "net.errors",
    "GroupMetadata": "consumer.group_offsets",
    "IdempotenceUnsupported": "net.errors",
    "InvalidRequest": "net.errors",
    "InvalidTransactionState": "net.errors",
    "KafkaError": "net.errors",
    "MessageTooLarge": "net.errors",
    "NoSuchTopic": "net.errors",
    "OutOfOrderSequence": "net.errors",
    "Producer": "producer.producer",
    "ProducerFailed": "net.errors",
    "ProducerFenced": "net.errors",
    "RecordMetadata": "producer.producer",
    "RequestTimedOut": "net.errors",
    "TransactionAborted": "net.errors",
    "TransactionFailed": "net.errors",
    "TransactionUnsettled": "net.errors",
    "TransactionsUnsupported": "net.errors",
    "UnknownProducer": "net.errors",
    "UnsupportedVersion": "net.errors",
}

if TYPE_CHECKING:
    from .admin.admin import Admin
    from .consumer.consumer import Consumer
    from .consumer.group_offsets import GroupMetadata
    from .consumer.records import ConsumerRecord
    from .net.errors import (
        BufferFull,
        ClientClosed,
        ClientError,
        ConfigError,
        ConnectionLost,
        DeliveryTimeout,
        IdempotenceUnsupported,
        InvalidRequest,
        InvalidTransactionState,
        KafkaError,
        MessageTooLarge,
        NoSuchTopic,
        OutOfOrderSequence,
        ProducerFailed,
        ProducerFenced,
        RequestTimedOut,
        TransactionAborted,
        TransactionFailed,
        TransactionsUnsupported,
        TransactionUnsettled,
        UnknownProducer,
        UnsupportedVersion,
    )
    from .net.options import ClientOptions
    from .producer.producer import CommittedRecord, Producer, RecordMetadata


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{home}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


__all__ = [
    "Admin",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ClientOptions",
    "CommittedRecord",
    "ConfigError",
    "ConnectionLost",
    "Consumer",
    "ConsumerRecord",
    "DeliveryTimeout",
    "GroupMetadata",
    "IdempotenceUnsupported",
    "InvalidRequest",
    "InvalidTransactionState",
    "KafkaError",
    "MessageTooLarge",
    "NoSuchTopic",
    "OutOfOrderSequence",
    "Producer",
    "ProducerFailed",
    "ProducerFenced",
    "RecordMetadata",
    "RequestTimedOut",
    "TransactionAborted",
    "TransactionFailed",
    "TransactionUnsettled",
    "TransactionsUnsupported",
    "UnknownProducer",
    "UnsupportedVersion",
]
