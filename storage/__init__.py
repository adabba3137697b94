"""Partition logs on files in Apache Kafka's own layout. Blocking, without an event loop; the time is an argument."""
