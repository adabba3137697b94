"""The settings of the security of listeners and tokens, from Kafka's configs."""
