"""Data directories: lock, identity, checkpoints, partitions, and restores."""
