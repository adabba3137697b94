"""Share groups (KIP-932): records that several members of a group acquire, and acknowledge one by one.

`share_partition.py` is the machine of one share partition, without clock and I/O; `state_coordinator.py` stores its
state in `__share_group_state`; `sessions.py` has the share sessions; `share_partitions.py` connects them with the logs.
"""
