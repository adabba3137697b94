"""The small files beside the segments, byte by byte."""
