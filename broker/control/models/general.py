"""Health, errors, log levels, and the bodies and responses that hold nothing or a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from ...logs import Levels
from .parts import NAME_MAX, Count, Model, doc, text

if TYPE_CHECKING:
    LevelName: TypeAlias = str
else:
    LevelName = Literal[Levels.LEVELS]

OpenApi = Annotated[dict[str, Any], doc("this document")]


class Error(Model):
    error: str


class Nothing(Model):
    """An object without fields."""


class Removed(Model):
    """How many were removed."""

    removed: Count


class Health(Model):
    status: Literal["serving", "failed"]
    reason: Annotated[str | None, doc("why the broker has failed; a reset or a restore starts it again")]
    version: str
    release: Annotated[str, doc("the Kafka release whose behaviour the broker has")]
    cluster_id: str
    bootstrap: Annotated[str, doc("the listeners' addresses: HOST:PORT, joined by commas")]


class LogLevel(Model):
    logger: Annotated[str, text(NAME_MAX, "its name, with or without the prefix ottla.broker., or root", 1)]
    level: Annotated[LevelName | None, doc("null: the inherited level")]


class LogLevels(Model):
    """The level of each logger by its name."""

    levels: dict[str, LevelName]
