"""Handlers of the APIs of access control lists, SCRAM credentials and delegation tokens."""
