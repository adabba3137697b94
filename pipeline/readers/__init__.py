"""Records from segment files and from brokers, decoded to Arrow."""
