"""Handlers of the APIs about configs and quotas."""
