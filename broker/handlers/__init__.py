"""One module per API: check, map the partitions, answer."""
