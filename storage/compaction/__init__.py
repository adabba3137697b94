"""Log compaction: selects the records to retain and rewrites segments with them."""
