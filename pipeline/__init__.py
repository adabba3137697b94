"""PySpark over the logs and over the wire."""
