"""Kafka's configs: definitions, sources, values, and the rules of dynamic changes."""
