"""Handlers of the APIs about nodes, log directories, the quorum, features and client telemetry."""
