"""Client quotas: limits for users, client ids and addresses, and the throttling of clients above them.

`stored` has the configured quotas, `limits` finds the limit of a client, `rates` measures a rate, `throttle` has a
broker's measurements, `meter` charges one request. KIP-13, 55, 124, 219, 546, 599, 612.
"""
