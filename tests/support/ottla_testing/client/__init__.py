"""Simulated brokers, networks and event loops for the client."""
