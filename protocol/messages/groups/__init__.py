"""Messages of consumer groups and their committed offsets."""
