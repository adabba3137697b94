"""franz-go with the interface of `ports`: `tests/interop/franz_history`."""

from __future__ import annotations

import json
import sys

from ottla_testing.history.life_lines import LineReceiving, LineSending


class Sending(LineSending):
    library = "franz"

    def also_consuming(self) -> tuple[str, ...]:
        config = json.loads(sys.argv[1])
        return (config["group"], ",".join(config["topics"])) if config["role"] == "loop" else ()


class Receiving(LineReceiving):
    library = "franz"
