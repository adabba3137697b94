"""The consumer: fetching, positions, group membership and committed offsets."""
