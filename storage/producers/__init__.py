"""Producer state of a partition: sequences, transactions, markers, and their snapshots."""
