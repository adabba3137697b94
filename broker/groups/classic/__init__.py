"""The classic group protocol: JoinGroup, SyncGroup, generations."""
