"""Apache Kafka as a process, and access to the data that it left in tests/oracle/golden."""
