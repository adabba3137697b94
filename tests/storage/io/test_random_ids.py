"""Random ids are uuids."""

from __future__ import annotations

import uuid

from ottla.storage.io import random_ids


def test_random_ids_are_uuids_of_version_4() -> None:
    made = [uuid.UUID(bytes=random_ids.uuid4()) for _ in range(100)]
    assert {(one.version, one.variant) for one in made} == {(4, uuid.RFC_4122)}
    assert len(set(made)) == 100
