"""Messages that write, read, look up and delete records."""
