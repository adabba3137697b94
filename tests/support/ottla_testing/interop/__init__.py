"""What checks of `make interop` share with scripts that run Apache Kafka's own code."""
