"""Work beside the requests: cleaning, retention, moves between log directories, the forced upgrade, each by the
clock."""
