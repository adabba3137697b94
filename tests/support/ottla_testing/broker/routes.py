"""The routes of all APIs that the broker serves."""

from __future__ import annotations

from ottla.broker.handlers import HANDLERS
from ottla.broker.network.route import route_of

ROUTES = {int(key): route_of(key) for key in HANDLERS}
"""By API key."""
