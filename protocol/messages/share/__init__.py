"""Share groups (KIP-932): records, acknowledgements, membership, offsets, and their stored state."""
