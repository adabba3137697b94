"""Makes `golden/transactions-*.json`: what Apache Kafka answers to the plays of `transaction_plays.py`.

    python tests/oracle/make_transactions.py [RELEASE...]     needs java, mvn (Maven Central) and a minute

3.9.1 is the last with transactions as KIP-98 has them, 4.3.1 has transaction.version 2 (KIP-890). Every run gives the
same but for the times; `test_transaction_answers.py` has the plays played by a broker of ours.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from kafka_process import Kraft  # type: ignore[import-not-found]
from transaction_plays import BOTH, NEW  # type: ignore[import-not-found]
from transaction_script import SETTINGS, Line, played, written  # type: ignore[import-not-found]

TARGET = Path(__file__).parent / "golden"
RELEASES = ("3.9.1", "4.3.1")


def make(release: str) -> dict[str, list[Line]]:
    """Name of the play -> its lines."""
    with tempfile.TemporaryDirectory() as place:
        kafka = Kraft(release, Path(place), **SETTINGS)
        try:
            plays = BOTH if release.startswith("3.") else BOTH + NEW
            return {play.__name__: played(play, kafka.address) for play in plays}
        finally:
            kafka.kill()


def main(releases: list[str]) -> None:
    for release in releases or RELEASES:
        made = make(release)
        (TARGET / f"transactions-{release}.json").write_text(written(made))
        print(f"{release}: {sum(map(len, made.values()))} lines in {len(made)} plays")


if __name__ == "__main__":
    main(sys.argv[1:])
