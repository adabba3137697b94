"""The parts of a partition log: opening, appending, reading, flushing, retention."""
