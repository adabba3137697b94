"""The small files beside the segments."""
