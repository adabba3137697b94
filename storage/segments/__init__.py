"""Segments of a log: appending, scanning, searching and replacing them."""
