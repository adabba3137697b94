"""The consumer group protocol (KIP-848): heartbeats, member epochs, assignors of the broker."""
