"""`ottla explain`: the producers and transactions of a partition, from its files or from a broker."""
