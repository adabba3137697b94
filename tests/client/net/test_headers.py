"""The headers of requests and responses as the client writes and reads them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ProtocolViolation
from ottla.protocol.headers import read_prefix, read_response_header, read_rest, request_header, response_header


@given(
    key=st.integers(0, 100),
    version=st.integers(0, 20),
    correlation_id=st.integers(0, 2**31 - 1),
    client_id=st.none() | st.text(max_size=30),
    flexible=st.booleans(),
)
def test_request_header_round_trips(
    key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> None:
    name = None if client_id is None else client_id.encode()
    header = request_header(key, version, correlation_id, name, flexible)
    prefix = read_prefix(header)
    assert prefix[:3] == (key, version, correlation_id)
    assert read_rest(header, prefix, flexible) == (client_id or "", len(header))


@pytest.mark.parametrize(
    ("arguments", "golden"),
    [
        ((3, 1, 7, b"me", False), "0003 0001 00000007 0002 6d65"),
        ((3, 9, 7, b"me", True), "0003 0009 00000007 0002 6d65 00"),
        ((18, 3, 1, None, True), "0012 0003 00000001 ffff 00"),
    ],
)
def test_request_headers_equal_those_of_the_protocol_guide(arguments: Any, golden: str) -> None:
    assert request_header(*arguments) == bytes.fromhex(golden)


@given(correlation_id=st.integers(-(2**31), 2**31 - 1), key=st.integers(0, 90), flexible=st.booleans())
def test_response_header_round_trips(correlation_id: int, key: int, flexible: bool) -> None:
    header = response_header(correlation_id, key, flexible)
    assert read_response_header(header + b"rest", key, flexible) == (correlation_id, len(header))


@given(data=st.binary(max_size=40), flexible=st.booleans())
def test_response_header_of_random_bytes_stays_within_them(data: bytes, flexible: bool) -> None:
    try:
        _, position = read_response_header(data, 1, flexible)
    except ProtocolViolation:
        return
    assert 4 <= position <= len(data)
