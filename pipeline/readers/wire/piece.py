"""The work of one task over the wire: a range of one partition, read from its leader."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pyarrow as pa

from ....client.net.security import Settings
from ....protocol.primitives import ZERO_UUID
from ...backend import OffsetRange, Wanted
from .config import client_options
from .connection import open_cluster
from .decoding import Decoder
from .event_loop import Loop, loop_here
from .fetch import RangeFetch


@dataclass(frozen=True, slots=True)
class WirePiece:
    """Records of a range; picklable. `config` has the `kafka.*` options without their prefix, `topic_id` is the topic's
    id at planning time (ZERO_UUID if unknown)."""

    config: Settings
    range: OffsetRange
    wanted: Wanted
    topic_id: bytes = ZERO_UUID

    def read(self) -> Generator[pa.RecordBatch, None, None]:
        """Yields the records in order, with the wanted columns. Connects at the first one; closes at the end, or when
        the iterator is closed. Raises ReadError and DataLoss, which name the broker and the offset."""
        options = client_options(self.config)
        if not self.range.size:
            return
        loop = loop_here()
        decoder = Decoder(self.wanted, self.range)
        try:
            cluster = loop.run(open_cluster(options))
            try:
                fetch = RangeFetch(
                    cluster,
                    options,
                    self.range,
                    committed=self.wanted.committed,
                    topic_id=self.topic_id,
                    fail_on_loss=self.wanted.fail_on_loss,
                    distrust_headers=self.wanted.on_corrupt != "fail",
                )
                yield from self._rows(loop, fetch, decoder)
            finally:
                loop.run(cluster.close())
        finally:
            loop.close()
            decoder.close()

    def _rows(self, loop: Loop, fetch: RangeFetch, decoder: Decoder) -> Iterator[pa.RecordBatch]:
        while (fetched := loop.run(fetch.next())) is not None:
            loop.run_ready()  # sends the next Fetch
            for found in decoder.rows(fetched):
                loop.run_ready()
                yield found
