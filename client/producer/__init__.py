"""The producer: batches, sequences, idempotence, and sending."""
