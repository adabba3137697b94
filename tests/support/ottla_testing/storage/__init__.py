"""Simulated disks, logs in every format, and crashes at every step."""
