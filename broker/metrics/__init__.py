"""Metrics of the broker for Prometheus.

`counters` has the integers that requests increment; `families` has the names and descriptions. `ottla.broker.admin_api`
reads the rest of the state for each scrape.
"""
