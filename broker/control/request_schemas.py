"""The JSON schemas of what the control plane tells of requests that clients made, and of what is expected of them."""

from __future__ import annotations

from ...protocol.limits import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX
from ..admin_api.expectations import CODECS, ENDINGS
from .schema_parts import FLAG, TEXT, TEXT_OR_NULL, list_of, object_of, text_of, whole
from .shapes import Schema

MAX_REQUESTS = 1_000  # in one answer
DEFAULT_REQUESTS = 100
MAX_PATTERN = 32_767
MAX_FIELDS = 100
WITHIN_MS_MAX = 600_000

NUMBER = whole(1, INT64_MAX, "the number of a request, counted from 1")
_COUNT = whole(0, INT64_MAX)
_VERSION = whole(0, INT16_MAX)
_PATTERN = text_of(MAX_PATTERN, "a text in which * and ? stand for any letters")
_API = text_of(1_000, "an API by Kafka's name, such as Produce; several are joined by commas", 1)
_ACKS = whole(-1, 1, "of Produce requests")
_CODEC: Schema = {"enum": [*CODECS], "description": "that of all batches of a Produce request"}
_MAGIC = whole(0, 2, "the message format of all batches of a Produce request")
_ERROR = text_of(100, "an error in the answer, by Kafka's name; NONE: no error at all")
_ENDING: Schema = {
    "enum": [*ENDINGS],
    "description": "silent: no answer is due (acks=0); closed: the connection was closed for it, or went",
}
_FLAG_OF_PRODUCE: Schema = {**FLAG, "description": "of Produce requests"}

_WHICH: dict[str, Schema] = {
    "client_id": _PATTERN,
    "software": {**_PATTERN, "description": "the client's library, such as librdkafka; * and ? stand for any letters"},
    "node": whole(0, INT32_MAX, "the node that was asked"),
    "topic": {**_PATTERN, "description": "a topic that the request names; * and ? stand for any letters"},
    "since": {**NUMBER, "description": "from this number on"},
}
_HOW: dict[str, Schema] = {
    "version": _VERSION,
    "min_version": _VERSION,
    "max_version": _VERSION,
    "acks": _ACKS,
    "codec": _CODEC,
    "magic": _MAGIC,
    "error": _ERROR,
    "ending": _ENDING,
}
QUERY: dict[str, Schema] = {
    "api": _API,
    **_WHICH,
    **_HOW,
    "limit": whole(1, MAX_REQUESTS, "how many at most", default=DEFAULT_REQUESTS),
    "order": {"enum": ["oldest", "newest"], "default": "oldest", "description": "which come first"},
    "show": {
        "enum": ["summary", "fields", "contents"],
        "default": "summary",
        "description": "whether requests and answers are told field by field, and records with their contents",
    },
}
_VALUE: Schema = {
    "anyOf": [
        {"type": "string"},
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "number", "minimum": -1e300, "maximum": 1e300},
    ]
}
_MESSAGE: Schema = {
    "type": ["object", "null"],
    "description": "by the names of its fields in Kafka's definitions; null where there is none, or it was too large",
}
_SEEN: dict[str, Schema] = {
    "number": NUMBER,
    "connection": {**NUMBER, "description": "the connection it came by, counted from 1"},
    "node": whole(-1, INT32_MAX),
    "listener": TEXT,
    "client_host": TEXT,
    "client_port": whole(-1, 65_535),
    "api": {"type": "string", "description": "its name; its number where none is known"},
    "api_key": whole(INT16_MIN, INT16_MAX),
    "version": whole(INT16_MIN, INT16_MAX),
    "correlation_id": whole(INT32_MIN, INT32_MAX),
    "client_id": TEXT_OR_NULL,
    "software": TEXT_OR_NULL,
    "software_version": TEXT_OR_NULL,
    "time_ms": {"type": "integer", "description": "milliseconds since 1970, by the broker's clock"},
    "duration_us": {"type": ["integer", "null"], "description": "until the answer left; null while it has not"},
    "ending": _ENDING,
    "reason": {"type": "string", "description": "why the connection was closed, where it was"},
    "fault": {"type": ["string", "null"], "description": "the faults on command that it met"},
    "request_bytes": _COUNT,
    "response_bytes": _COUNT,
    "errors": {**list_of(TEXT), "description": "the errors in the answer, by Kafka's names"},
    "topics": {**list_of(TEXT), "description": "the topics that the request names"},
    "produced": {
        "anyOf": [
            object_of(
                {
                    "acks": {"type": "integer"},
                    "codecs": list_of(TEXT),
                    "magics": list_of({"type": "integer"}),
                    "is_idempotent": FLAG,
                    "is_transactional": FLAG,
                    "producer_ids": list_of({"type": "integer"}),
                    "records": _COUNT,
                }
            ),
            {"type": "null"},
        ],
        "description": "what a Produce request says of its producer",
    },
    "request": _MESSAGE,
    "response": _MESSAGE,
}
_HEX: Schema = {"type": ["string", "null"], "description": "the frame without its size; null where it was not kept"}

REQUESTS: dict[str, Schema] = {
    "SeenRequest": object_of(_SEEN, optional=("request", "response")),
    "SeenRequests": object_of(
        {
            "requests": list_of("SeenRequest"),
            "more": {**FLAG, "description": "there are more that fit"},
            "next": {**NUMBER, "description": "the number that the next request will have: for `since`"},
            "forgotten": {**_COUNT, "description": "so many were asked for and are not kept any more"},
        }
    ),
    "WholeRequest": object_of({**_SEEN, "request_hex": _HEX, "response_hex": _HEX}),
    "Expectation": object_of(
        {
            "api": {
                "anyOf": [_API, list_of(_API, 100)],
                "description": "an API by Kafka's name, or several; words of Produce requests make it needless",
            },
            **_WHICH,
            **_HOW,
            "acks": {
                "anyOf": [_ACKS, {"enum": ["all"], "type": "string"}],
                "description": "of Produce requests",
            },
            "idempotent": _FLAG_OF_PRODUCE,
            "transactional": _FLAG_OF_PRODUCE,
            "fields": {
                "type": "object",
                "additionalProperties": _VALUE,
                "maxProperties": MAX_FIELDS,
                "description": "values of fields by their paths, such as topic_data.name, or response.throttle_time_ms",
            },
            "count": _COUNT,
            "min_count": {**_COUNT, "default": 1},
            "max_count": _COUNT,
            "none": {**FLAG, "description": "no request may be as all this says"},
            "within_ms": whole(0, WITHIN_MS_MAX, "how long to wait for requests and answers to come", default=0),
        },
        optional=None,
        text="which requests are looked at (api to since), how each has to be, and how many there are",
    ),
    "Verdict": object_of(
        {
            "passed": FLAG,
            "text": {"type": "string", "description": "what was otherwise, in some lines; empty where nothing was"},
            "count": {**_COUNT, "description": "how many requests were looked at"},
            "requests": {**list_of("SeenRequest"), "description": "the first of them"},
        }
    ),
}
