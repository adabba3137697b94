"""Transactions: the owner and the open transaction of each transactional id, and their log.

`table` decides, as pure functions over the values in `state`; `records` encodes them for `__transaction_state`. KIP-98,
360, 588, 679, 890, 915.
"""
