"""A Protobuf schema and messages of it."""

from __future__ import annotations

import io
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "parts", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "raw", "type": {"type": "fixed", "name": "Raw", "size": 2}},
        {"name": "previous", "type": ["null", "Order"]},
    ],
}


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def order(previous: Any = None) -> dict[str, Any]:
    from decimal import Decimal

    return {
        "id": 1, "price": Decimal("-1.05"), "at": 1_700_000_000_000, "day": 1, "state": "PAID", "note": "é",
        "parts": [{"a": 0.5}, {}], "raw": b"\xff\0", "previous": previous,
    }  # fmt: skip


def descriptor_set(*, package: str = "shop", imports: tuple[str, ...] = ()) -> bytes:
    """Returns a descriptor set with the messages Order (with a nested Line, and recursive) and Other."""
    field = descriptor_pb2.FieldDescriptorProto
    one = descriptor_pb2.FileDescriptorProto(name="orders.proto", package=package, syntax="proto3", dependency=imports)
    message = one.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    message.field.add(name="note_text", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    line = message.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    at = {"type": field.TYPE_MESSAGE, "label": field.LABEL_REPEATED}
    message.field.add(name="lines", number=3, type_name=f".{package}.Order.Line", **at)
    message.field.add(name="orders", number=4, type_name=f".{package}.Order", **at)
    other = one.message_type.add(name="Other")
    other.field.add(name="flag", number=1, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[one]).SerializeToString()


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for one in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set()).file:
        pool.AddSerializedFile(one.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
