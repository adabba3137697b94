"""Handlers of the APIs that write, read, look up and delete records."""
