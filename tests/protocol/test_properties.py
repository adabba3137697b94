"""Java's properties files: read and written as `java.util.Properties` does. The expected pairs are Java 17's."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.protocol.properties import format_properties, parse_properties
from ottla.storage.errors import StorageError
from ottla.storage.format.meta_properties import read_meta_properties
from ottla.storage.io.memory import MemoryFiles


@pytest.mark.parametrize(
    ("data", "pairs"),
    [
        (b"plain=value", {"plain": "value"}),
        (b"  spaced \t : \f two words ", {"spaced": "two words "}),
        (b"tab\tseparated", {"tab": "separated"}),
        (b"blank = = value", {"blank": "= value"}),
        (b"no-value", {"no-value": ""}),
        (b"= no key", {"": "no key"}),
        (b"a=1\r\nb=2\ra=3\n", {"a": "3", "b": "2"}),
        (b"# a comment \\\n ! another \\\na=1", {"a": "1"}),
        (b"a=1#2!3", {"a": "1#2!3"}),
        (b"joined = one,\\\n   two,\\\r\n\tthree", {"joined": "one,two,three"}),
        (b"a=1\\\n#2", {"a": "1#2"}),
        (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        (b"\\\n# a comment\na=1", {"a": "1"}),
        (b"even=\\\\\nb=2", {"even": "\\", "b": "2"}),
        (b"last=cut\\", {"last": "cut"}),
        (rb"equals\=in\:key\ here = a=b", {"equals=in:key here": "a=b"}),
        (rb"escapes=\t\n\r\f\q\"\\", {"escapes": '\t\n\r\fq"\\'}),
        (rb"unicode=\u0041\u00e4\uD83D\uDE00", {"unicode": "Aä\U0001f600"}),
        (b"latin=\xe4", {"latin": "ä"}),
        (b"", {}),
    ],
)
def test_properties_file_is_read_as_by_java(data: bytes, pairs: dict[str, str]) -> None:
    assert parse_properties(data) == pairs


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (rb"sasl.password=secret\u00g1", "the value of sasl.password"),
        (rb"a=\u12", "the value of a"),
        (rb"\u=1", r"the key .u"),
    ],
)
def test_malformed_unicode_escape_is_refused(data: bytes, place: str) -> None:
    with pytest.raises(ValueError, match=rf"^malformed .uxxxx escape in {place}$"):
        parse_properties(data)


@given(st.binary(max_size=200))
def test_any_bytes_give_pairs_or_a_malformed_escape(data: bytes) -> None:
    try:
        pairs = parse_properties(data)
    except ValueError:
        assert b"\\u" in data
    else:
        assert len(pairs) <= len(data)


@given(st.dictionaries(TEXT := st.text() | st.text("a =:#!\\\n\t\r\fä€"), TEXT))
@example({" a b ": "  c d "})
def test_written_pairs_are_read_back(pairs: dict[str, str]) -> None:
    assert parse_properties(format_properties(pairs)) == pairs


def test_pairs_are_written_as_by_java() -> None:
    pairs = {"a b": " c d", "#k": "1=2:3!", "tab": "\t\\", "far": "ä\U0001f600"}
    assert format_properties(pairs).splitlines() == [
        b"#",
        rb"a\ b=\ c d",
        rb"\#k=1\=2\:3\!",
        rb"tab=\t\\",
        rb"far=\u00E4\uD83D\uDE00",
    ]


def holding(data: bytes) -> MemoryFiles:
    """Returns files with a meta.properties of these bytes."""
    files = MemoryFiles(lambda: 0)
    files.open("/meta.properties", create=True).write(0, data)
    return files


def test_cluster_id_that_java_escaped_is_read_unescaped_from_meta_properties() -> None:
    data = rb"cluster.id=MkU3OEVBNTcwNTJENDM2Qk\=\=" + b"\nnode.id=1\nversion=1\n"
    assert read_meta_properties(holding(data), "/")["cluster.id"] == "MkU3OEVBNTcwNTJENDM2Qk=="


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"version=1\nnode.i", "'node.i' has no value"),
        (b"version=1\ncluster.id=\n", "'cluster.id' has no value"),
        (b"\0\0\0\0", "has no value"),
        (b"version=7\n", "version '7' is unknown; known are 0 and 1"),
        (b"node.id=1\n", "version None is unknown"),
        (rb"version=\u1", "malformed /meta.properties: malformed"),
    ],
)
def test_damaged_meta_properties_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(StorageError, match=problem):
        read_meta_properties(holding(data), "/")
