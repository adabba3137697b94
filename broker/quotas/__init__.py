"""Quotas of clients: how fast a user, a client id or an address may go, and what happens to those that go faster.

`stored` is what was set, `limits` who is held to what, `rates` how a rate is measured, `throttle` a broker's buckets,
`meter` what one request is charged. KIP-13, 55, 124, 219, 546, 599, 612.
"""
