"""Makes `golden/directories/`: whole data directories of Apache Kafka 2.8.2, 3.9.1 and 4.3.1.

    python tests/oracle/make_directories.py [RELEASE...]      needs java, mvn (Maven Central) and some minutes

`RELEASE/` is a directory after a clean shutdown; `RELEASE-killed/` one topic and the checkpoints after kill -9, with
the zeros at the end of its indexes. `RELEASE.json` has what that release's own clients read from each topic (bytes are
base64). Kafka 2.8.2 and 3.9.1 run with ZooKeeper, 4.3.1 has a `__cluster_metadata-0`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from ottla_testing import GOLDEN
from ottla_testing.oracle.released_directories import RELEASES, make

TARGET = GOLDEN / "directories"


def main(releases: list[str]) -> None:
    for release in releases or RELEASES:
        with tempfile.TemporaryDirectory() as place:
            found = make(release, Path(place), TARGET)
        lines = ",\n".join(f"{json.dumps(topic)}: {json.dumps(facts)}" for topic, facts in found.items())
        (TARGET / f"{release}.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
