"""A mixin for unittest that gives a test case a broker and topics.

    class TestOrders(OttlaMixin, unittest.TestCase):
        ottla_topic_configs = {"cleanup.policy": "compact"}

        def test_it(self):
            publish(self.ottla_broker.bootstrap, self.ottla_topic)
            self.ottla_broker.assert_produced(self.ottla_topic, [b"order 1"])

The broker of a class is started before its first test.
"""

from __future__ import annotations

import re
import unittest
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from ..config.security.words import PLAINTEXT
from ..releases.profiles import NEWEST
from .embedded import AsyncEmbedded, Embedded

MAX_WORDS = 100  # characters of a test's name in the name of its topic; Kafka allows 249 in all
NUMBERS = count()


class OttlaMixin(unittest.TestCase if TYPE_CHECKING else object):
    """One broker for each class, configured by class attributes. Stands before TestCase among the base classes.

    `ottla_broker` runs from `setUpClass` to after `tearDownClass`; `ottla_topic` is a topic for the test alone, created
    on first use; `ottla_factory` starts more brokers, which stop with the test. In an IsolatedAsyncioTestCase
    `ottla_async_broker` is the same broker with methods to be awaited.
    """

    ottla_release: ClassVar[str] = NEWEST
    ottla_configs: ClassVar[Mapping[str, Any]] = {}
    ottla_brokers: ClassVar[int | None] = None
    ottla_node_ids: ClassVar[Sequence[int] | None] = None
    ottla_security: ClassVar[str] = PLAINTEXT
    ottla_topic_configs: ClassVar[Mapping[str, Any]] = {}
    ottla_topic_partitions: ClassVar[int] = 1
    ottla_broker: ClassVar[Embedded]

    @classmethod
    def setUpClass(cls) -> None:
        cls.ottla_broker = cls.enterClassContext(
            Embedded(
                release=cls.ottla_release,
                configs=cls.ottla_configs,
                brokers=cls.ottla_brokers,
                node_ids=cls.ottla_node_ids,
                security=cls.ottla_security,
            )
        )
        super().setUpClass()

    @property
    def ottla_async_broker(self) -> AsyncEmbedded:
        """`ottla_broker` for coroutines."""
        return self.ottla_broker.aio

    @property
    def ottla_topic(self) -> str:
        """The name of the test's own topic, the same throughout the test."""
        if (name := self.__dict__.get("_ottla_topic")) is None:
            words = re.sub(r"[^A-Za-z0-9_-]+", "-", self._testMethodName)[:MAX_WORDS]
            name = self.ottla_broker.create_topic(
                f"{words}-{next(NUMBERS)}", self.ottla_topic_partitions, self.ottla_topic_configs
            )
            self.__dict__["_ottla_topic"] = name
        return name

    def ottla_factory(
        self, release: str | None = None, configs: Mapping[str, Any] = {}, brokers: int | None = None, **more: Any
    ) -> Embedded:
        """Starts a broker for this test. `more` are further arguments of `Embedded`."""
        more.setdefault("security", self.ottla_security)
        broker = Embedded(release=release or self.ottla_release, configs=configs, brokers=brokers, **more)
        return self.enterContext(broker)
