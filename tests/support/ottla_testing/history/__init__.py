"""Histories of clients' operations: clients that record them, and a checker for violations."""
