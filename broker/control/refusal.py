"""A request to the control plane that is refused."""

from __future__ import annotations


class Refusal(Exception):
    """A request that is not done: an HTTP status of the 400s and one line that says why."""

    def __init__(self, status: int, message: object) -> None:
        super().__init__(message)
        self.status = status
