"""Random messages and record batches, and independent codecs to compare with."""
