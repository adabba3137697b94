"""Kafka's wire protocol: messages, record batches and framing. No I/O, no clock, no event loop."""
