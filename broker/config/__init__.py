"""Kafka's configs: their definitions, sources, values, and the rules by which they change while the broker runs."""
