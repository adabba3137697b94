"""Messages about nodes, log directories, the quorum, features and client telemetry."""
