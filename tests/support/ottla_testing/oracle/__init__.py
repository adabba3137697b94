"""Apache Kafka as a process, and access to its data in tests/oracle/golden."""
