"""`ApiKey`, compared with the declared messages."""

from __future__ import annotations

import re

from ottla.protocol.api_key import ApiKey
from ottla.protocol.apis import apis


def test_api_keys_equal_those_of_declared_messages() -> None:
    declared = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).upper(): key for key, api in apis().items()}
    assert {api.name: api.value for api in ApiKey} == declared
