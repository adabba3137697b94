"""A small asyncio client over `ottla.protocol`: producer, transactions, consumer, admin.

Names are imported when first used.

    async with Producer(transactional_id="orders") as producer:
        async with producer.transaction():
            await producer.send("orders", b"one")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOME = {
    "Admin": "admin",
    "BufferFull": "errors",
    "ClientClosed": "errors",
    "ClientError": "errors",
    "ClientOptions": "options",
    "CommittedRecord": "producer",
    "ConfigError": "errors",
    "ConnectionLost": "errors",
    "Consumer": "consumer",
    "ConsumerRecord": "records",
    "DeliveryTimeout": "errors",
    "GroupMetadata": "group_offsets",
    "IdempotenceUnsupported": "errors",
    "InvalidRequest": "errors",
    "InvalidTransactionState": "errors",
    "KafkaError": "errors",
    "MessageTooLarge": "errors",
    "NoSuchTopic": "errors",
    "OutOfOrderSequence": "errors",
    "Producer": "producer",
    "ProducerFailed": "errors",
    "ProducerFenced": "errors",
    "RecordMetadata": "producer",
    "RequestTimedOut": "errors",
    "TransactionAborted": "errors",
    "TransactionFailed": "errors",
    "TransactionUnsettled": "errors",
    "TransactionsUnsupported": "errors",
    "UnknownProducer": "errors",
    "UnsupportedVersion": "errors",
}

if TYPE_CHECKING:
    from .admin import Admin
    from .consumer import Consumer
    from .errors import (
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
    from .group_offsets import GroupMetadata
    from .options import ClientOptions
    from .producer import CommittedRecord, Producer, RecordMetadata
    from .records import ConsumerRecord


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
