"""What librdkafka leaves behind in two requests: three bytes when it asks for all topics, one when it sets SCRAM
credentials.

From Metadata v9 on it writes the null array in four bytes instead of one (librdkafka issue 5049), and it ends
AlterUserScramCredentials twice. Kafka does not look at what is left over of a request; here that is an error, with
these exceptions.
"""

from __future__ import annotations

import contextlib

from .compiler import parser
from .errors import MalformedMessage
from .messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from .schema import spec

METADATA_KEY = 3
SCRAM_KEY = spec(AlterUserScramCredentialsRequest).api_key


def as_meant(frame: memoryview, position: int, api_key: int, api_version: int) -> memoryview:
    """A request, whose message begins at `position`, without what librdkafka leaves behind."""
    if api_key == METADATA_KEY and api_version >= 9:
        meant = frame[position:-3]
        if meant == bytes(5 if api_version <= 10 else 4):  # null, the flags, no tags: whole in itself
            return frame[:-3]
        # Up to v10 the first flag stands where Kafka finds the number of tagged fields: one, empty, and one byte more.
        if api_version <= 10 and len(meant) == 5 and meant == b"\0\0\0\0\1" and frame[-2] == 0:
            return frame[:-1]
    elif api_key == SCRAM_KEY and frame[-1:] == b"\0":
        with contextlib.suppress(MalformedMessage):
            parser(AlterUserScramCredentialsRequest, api_version)(frame[:-1], position)
            return frame[:-1]
    return frame
