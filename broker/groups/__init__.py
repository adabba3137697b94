"""Consumer groups with the classic protocol: members, rebalances, committed offsets and their log.

`machine` decides, as pure functions over values; `coordinator` carries out its effects. KIP-62, 134, 211, 345, 394,
429, 448, 496, 559, 699, 709, 814.
"""
