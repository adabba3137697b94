"""Share groups (KIP-932): members, assignments, and which share partitions have state."""
