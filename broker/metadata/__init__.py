"""Cluster metadata: its log, topics, nodes, leaders, and the import of data directories of Apache Kafka."""
