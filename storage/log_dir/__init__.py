"""A data directory: its lock, identity, checkpoints, partitions, and its replacement as a whole."""
