"""Decoding of keys and values with schema files: Avro and Protocol Buffers."""
