"""Messages that append, fetch and delete records and look up offsets."""
