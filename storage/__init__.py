"""Partition logs on files in Apache Kafka's own layout. Blocking, no event loop, time as an argument."""
