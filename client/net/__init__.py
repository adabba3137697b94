"""Connections, the metadata of the cluster, the options of all clients, and errors."""
