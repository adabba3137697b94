"""Consumer groups, the classic protocol: members and their rebalances, committed offsets, and their log.

`machine` decides and knows nothing but values; `coordinator` performs what it decided. KIP-62, 134, 211, 345, 394,
429, 448, 496, 559, 699, 709, 814.
"""
