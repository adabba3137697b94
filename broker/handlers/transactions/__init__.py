"""Handlers of the APIs of producer ids and transactions."""
