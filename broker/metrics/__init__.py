"""What the broker counts of its own doing, and how Prometheus is told.

`counters` is what requests touch, plain integers; `gather` looks at the rest of the state when somebody asks;
`families` has the names; `scrape` writes them down.
"""
