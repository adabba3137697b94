"""Commands in the words of Kafka's own tools, over `ottla.client.Admin`."""
