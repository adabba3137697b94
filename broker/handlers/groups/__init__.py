"""Handlers of the APIs of consumer groups and their committed offsets."""
