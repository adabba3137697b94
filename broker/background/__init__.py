"""Background work: log cleaning, retention, checkpoints, and moves between log directories."""
