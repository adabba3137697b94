"""Record batches: their layout, compression and validation. Records stay bytes wherever possible."""
