"""Keys and values of the records in Kafka's internal topics and in its metadata log."""
