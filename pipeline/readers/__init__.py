"""Records from where they lie: segment files and brokers, decoded to Arrow."""
