"""Schemas of values: where they come from (`registry`, `folder`), and the columns of JSON Schema and of Protobuf."""
