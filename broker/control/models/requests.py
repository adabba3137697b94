"""Requests that clients made, the expectations that a test has of them, and their recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from ....protocol.limits import INT16_MAX, INT16_MIN, INT32_MAX, INT32_MIN, INT64_MAX
from ...admin_api.expectations import CODECS, ENDINGS
from ...config.record_options import LEAST_BYTES, MAX_BYTES, Format
from .parts import ID_MAX, Count, Model, NodeId, Number, doc, items, text, whole

REQUESTS_MAX = 1_000  # in one response
FIELDS_MAX = 100
WITHIN_MS_MAX = 600_000
PATH_MAX = 4096
_ANY = "a pattern with * and ?"
Api = Annotated[str, text(1_000, "an API by Kafka's name, such as Produce; several are joined by commas", 1)]
Version = Annotated[int, whole(0, INT16_MAX)]
Acks = Annotated[int, whole(-1, 1)]

if TYPE_CHECKING:
    Codec: TypeAlias = str
    Ending: TypeAlias = str
    FormatName: TypeAlias = str
else:
    Codec = Literal[tuple(CODECS)]
    Ending = Literal[tuple(ENDINGS)]
    FormatName = Literal[tuple(map(str, Format))]
_Ending = Annotated[
    Ending, doc("silent: acks=0 has no response; closed: the connection was closed for it, or by the client")
]


class _Filter(Model):
    """The words that a query and an expectation have in common."""

    client_id: Annotated[str, text(ID_MAX, _ANY)] | UnsetType = UNSET
    software: Annotated[str, text(ID_MAX, f"the client library, such as librdkafka; {_ANY}")] | UnsetType = UNSET
    principal: Annotated[str, text(ID_MAX, f"that of the connection, such as User:ann; {_ANY}")] | UnsetType = UNSET
    node: Annotated[NodeId, doc("the node that received the request")] | UnsetType = UNSET
    topic: Annotated[str, text(ID_MAX, f"a topic that the request names; {_ANY}")] | UnsetType = UNSET
    since: Annotated[Number, doc("the lowest number")] | UnsetType = UNSET
    version: Version | UnsetType = UNSET
    min_version: Version | UnsetType = UNSET
    max_version: Version | UnsetType = UNSET
    codec: Annotated[Codec, doc("the codec of all batches of a Produce request")] | UnsetType = UNSET
    magic: Annotated[int, whole(0, 2, "the message format of all batches of a Produce request")] | UnsetType = UNSET
    error: Annotated[str, text(100, "an error in the response, by Kafka's name; NONE: no error at all")] | UnsetType = (
        UNSET
    )
    ending: _Ending | UnsetType = UNSET


class RequestsQuery(_Filter):
    api: Api | UnsetType = UNSET
    acks: Annotated[Acks, doc("of Produce requests")] | UnsetType = UNSET
    limit: Annotated[int, whole(1, REQUESTS_MAX, "requests at most")] = 100
    order: Annotated[Literal["oldest", "newest"], doc("which come first")] = "oldest"
    show: Annotated[
        Literal["summary", "fields", "contents"],
        doc("fields: with the fields of requests and responses; contents: also with the contents of records"),
    ] = "summary"


class Expectation(_Filter):
    """Which requests are considered (api to since), how each has to be, and how many there are."""

    api: (
        Annotated[
            Api | Annotated[list[Api], items(100)],
            doc("an API by Kafka's name, or several; Produce by default with words about Produce requests"),
        ]
        | UnsetType
    ) = UNSET
    acks: Annotated[Acks | Literal["all"], doc("of Produce requests")] | UnsetType = UNSET
    idempotent: Annotated[bool, doc("of Produce requests")] | UnsetType = UNSET
    transactional: Annotated[bool, doc("of Produce requests")] | UnsetType = UNSET
    fields: (
        Annotated[
            dict[str, str | int | bool | Annotated[float, Meta(ge=-1e300, le=1e300)] | None],
            items(
                FIELDS_MAX,
                description="values of fields by their paths, such as topic_data.name or response.throttle_time_ms",
            ),
        ]
        | UnsetType
    ) = UNSET
    count: Count | UnsetType = UNSET
    min_count: Annotated[Count, Meta(extra_json_schema={"default": 1})] | UnsetType = UNSET
    max_count: Count | UnsetType = UNSET
    none: Annotated[bool, doc("no request may match")] | UnsetType = UNSET
    within_ms: Annotated[int, whole(0, WITHIN_MS_MAX, "how long to wait for matching requests and responses")] = 0


class Produced(Model):
    """The producer's part of a Produce request."""

    acks: int
    codecs: list[str]
    magics: list[int]
    is_idempotent: bool
    is_transactional: bool
    producer_ids: list[int]
    records: Count


_Message = Annotated[
    dict[str, Any] | None,
    doc("the fields by Kafka's names; null for a message that is missing or was too large to keep"),
]


class _Seen(Model):
    number: Number
    connection: Annotated[Number, doc("the connection, counted from 1")]
    node: Annotated[int, whole(-1, INT32_MAX)]
    listener: str
    client_host: str
    client_port: Annotated[int, whole(-1, 65_535)]
    api: Annotated[str, doc("its name, or its key if that is unknown")]
    api_key: Annotated[int, whole(INT16_MIN, INT16_MAX)]
    version: Annotated[int, whole(INT16_MIN, INT16_MAX)]
    correlation_id: Annotated[int, whole(INT32_MIN, INT32_MAX)]
    client_id: str | None
    software: str | None
    software_version: str | None
    principal: Annotated[str, doc("that of the connection when the request arrived, User:ANONYMOUS without one")]
    time_ms: Annotated[int, doc("milliseconds since 1970, by the broker's clock")]
    duration_us: Annotated[int | None, doc("until the response was sent; null before")]
    ending: _Ending
    reason: Annotated[str, doc("why the connection was closed, if it was")]
    fault: Annotated[str | None, doc("the faults that fired for it")]
    request_bytes: Count
    response_bytes: Count
    errors: Annotated[list[str], doc("the errors in the response, by Kafka's names")]
    topics: Annotated[list[str], doc("the topics that the request names")]
    produced: Produced | None


class SeenRequest(_Seen):
    request: _Message | UnsetType = UNSET
    response: _Message | UnsetType = UNSET


class SeenRequests(Model):
    requests: list[SeenRequest]
    more: Annotated[bool, doc("whether more requests match")]
    next: Annotated[Number, doc("the number of the next request to come: for `since`")]
    forgotten: Annotated[Count, doc("matching numbers that are not kept any more")]


class WholeRequest(_Seen):
    request: _Message
    response: _Message
    request_hex: Annotated[str | None, doc("the frame without its size; null if it was not kept")]
    response_hex: Annotated[str | None, doc("likewise")]


class Verdict(Model):
    passed: bool
    text: Annotated[str, doc("the differences, in some lines; empty for none")]
    count: Annotated[Count, doc("how many requests were considered")]
    requests: Annotated[list[SeenRequest], doc("the first of them")]


class NewRecording(Model):
    file: Annotated[
        str, text(PATH_MAX, "a path of the broker's; its ending chooses JSON lines (.jsonl) or Wireshark's .pcapng", 1)
    ]
    max_bytes: Annotated[int, whole(LEAST_BYTES, INT64_MAX, "the recording ends at this size")] = MAX_BYTES
    ring: Annotated[bool, doc("keep the newest instead, in FILE and FILE.1")] = False
    contents: Annotated[bool, doc("false omits keys and values of records, and values of their headers")] = True


class Recording(Model):
    """The recording that runs, or the last one; file is null without any."""

    running: bool
    file: str | None
    format: FormatName | None
    max_bytes: int | None
    ring: bool
    contents: bool
    since_ms: Annotated[int | None, doc("when it began, by the broker's clock")]
    exchanges: Annotated[Count, doc("requests that ended since")]
    dropped: Annotated[Count, doc("requests too fast or too large to be written, or removed by a ring undecoded")]
    waiting_bytes: Annotated[Count, doc("bytes still to be written, before they are decoded")]
    size_bytes: Annotated[Count, doc("the size of its files now")]
    ended: Annotated[str | None, doc("why it ended: stopped, or the error")]
