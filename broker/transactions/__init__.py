"""Transactions: who owns a transactional id, what its transaction holds, and the log of both.

`table` decides and knows nothing but values (`state`); `records` are those values in `__transaction_state`. KIP-98,
360, 588, 679, 890, 915.
"""
