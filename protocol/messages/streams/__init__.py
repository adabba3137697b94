"""Streams groups. KIP-1071, KIP-1331, KIP-1357."""
