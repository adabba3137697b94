"""Random messages and record batches, and independent codecs for comparison."""
