from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from ottla.pipeline import scan


def total(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    sizes = sum(pc.sum(batch["valueSize"]).as_py() or 0 for batch in batches)
    yield pa.record_batch({"bytes": [sizes]})


found = scan("data", subscribe="orders", columns="valueSize").map_arrow(total, "bytes long")
print(found.groupBy().sum("bytes").first()[0], "bytes")
