"""The metadata of the cluster: its log, topics, nodes, leaders, and the adoption of directories of Apache Kafka."""
