"""Bytes printed by their schemas: frames, messages, batches and records, each field with its position."""
