"""Reads data directories without changing them, verifies them, and repairs what is damaged."""
