"""Smallest and largest values of the signed integers in messages and files."""

from __future__ import annotations

INT8_MIN, INT8_MAX = -(2**7), 2**7 - 1
INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def wrapped_int64(value: int) -> int:
    """Returns the 64 low bits of a sum as a signed number, as Java's arithmetic does without an error."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN
