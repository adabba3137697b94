"""Handlers of the APIs about topics and their partitions."""
