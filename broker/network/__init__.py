"""Sockets, connections, and the way of a request from its frame to its handler."""
