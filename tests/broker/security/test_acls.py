"""Access control lists: filters and authorizer decisions, compared with linear searches."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.config.java_classes import AuthorizerSettings, authorizer_settings
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError, Refused
from ottla.broker.releases.profiles import profile
from ottla.broker.security.acls import CHANGES_MAX, Acl, AclFilter, Acls, prefixes_of
from ottla.broker.security.standard import DECISIONS_MAX, StandardAuthorizer
from ottla.protocol.acls import AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_records.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from ottla.protocol.records import steps
from ottla.protocol.records.steps import Steps
from ottla.storage.errors import StorageError

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED, MATCH, ANY = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH, 1
ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
Op = AclOperation
A, B = "User:a", "User:b"
HERE, THERE = "127.0.0.1", "10.0.0.1"


class Log:
    """A stand-in for the metadata log."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.is_broken = False

    def prepare_steps(self, records: Any, now_ms: int) -> Steps[Any]:
        yield None
        return list(records)

    def write(self, prepared: Any, now_ms: int) -> None:
        if self.is_broken:
            raise StorageError("broken")
        self.batches.append(prepared)


def store(*acls: Acl) -> Acls:
    ids = itertools.count(1)
    made = Acls(Log(), lambda: next(ids).to_bytes(16, "big"))  # type: ignore[arg-type]
    made.add(acls, 0)
    return made


def log_of(acls: Acls) -> Log:
    return acls._log  # type: ignore[return-value]


def allow(operation: int = Op.READ, name: str = "t", pattern: int = LITERAL, who: str = A, host: str = "*") -> Acl:
    return Acl(TOPIC, name, pattern, who, host, operation, ALLOW)


def deny(operation: int = Op.READ, name: str = "t", pattern: int = LITERAL, who: str = A, host: str = "*") -> Acl:
    return allow(operation, name, pattern, who, host)._replace(permission_type=DENY)


def decider(*acls: Acl, super_users: str = "", everyone: bool = False) -> StandardAuthorizer:
    return StandardAuthorizer(store(*acls), AuthorizerSettings(frozenset(super_users.split()), everyone))


def may(
    authorizer: StandardAuthorizer, operation: AclOperation, name: str = "t", who: str = A, host: str = HERE
) -> bool:
    return authorizer.allows(who, host, operation, TOPIC, name)


# ---- rules


def test_resource_without_entries_follows_the_config() -> None:
    assert not may(decider(), Op.READ)
    assert may(decider(everyone=True), Op.READ)
    other = decider(allow(Op.WRITE, who=B), everyone=True)
    assert not may(other, Op.READ), "the topic has an entry, though not for this principal"
    assert may(other, Op.READ, "u")
    assert not may(decider(allow(name="*", who=B), everyone=True), Op.READ)
    assert not may(decider(allow(name="", pattern=PREFIXED, who=B), everyone=True), Op.READ)


def test_super_user_is_always_allowed() -> None:
    authorizer = decider(deny(Op.ALL, "*", who="User:*"), super_users=A)
    assert may(authorizer, Op.READ) and may(authorizer, Op.ALTER, "u") and not may(authorizer, Op.READ, who=B)
    assert authorizer.allows_any(A, HERE, Op.WRITE, TOPIC) and not authorizer.allows_any(B, HERE, Op.WRITE, TOPIC)
    assert not may(authorizer, Op.READ, who="user:a") and not may(authorizer, Op.READ, who="User:a ")


def test_resource_patterns() -> None:
    authorizer = decider(allow(name="t"), allow(name="pre", pattern=PREFIXED))
    assert [may(authorizer, Op.READ, name) for name in ("t", "tt", "", "pre", "prefix", "pr")] == [
        *(True, False, False),
        *(True, True, False),
    ]
    everything = decider(allow(name="*"))
    assert may(everything, Op.READ, "t") and may(everything, Op.READ, "*") and may(everything, Op.READ, "")
    stars = decider(allow(name="*", pattern=PREFIXED))
    assert not may(stars, Op.READ, "t") and may(stars, Op.READ, "*t"), "no wildcard in a prefixed pattern"
    assert not decider(allow(name="*")).allows(A, HERE, Op.READ, GROUP, "t")


def test_principal_and_host() -> None:
    authorizer = decider(allow(host=HERE), allow(Op.WRITE, who="User:*", host=THERE), allow(Op.ALTER, who="Group:*"))
    assert may(authorizer, Op.READ) and not may(authorizer, Op.READ, host=THERE) and not may(authorizer, Op.READ, who=B)
    assert may(authorizer, Op.WRITE, host=THERE) and may(authorizer, Op.WRITE, who=B, host=THERE)
    assert not may(authorizer, Op.WRITE)
    assert not may(authorizer, Op.ALTER, who="Group:a"), "only User:* is a wildcard"
    assert may(decider(allow(who="User:*")), Op.READ, who="Service:x"), "User:* applies to every principal type"
    assert not may(decider(allow(host="192.0.2.0/24")), Op.READ), "another block of addresses"


def test_deny_wins_however_general_it_is() -> None:
    for denied in (deny(), deny(Op.ALL), deny(name="*"), deny(name="", pattern=PREFIXED), deny(who="User:*")):
        authorizer = decider(allow(), allow(Op.ALL), allow(name="*"), denied)
        assert not may(authorizer, Op.READ), denied
        assert may(authorizer, Op.READ, host=HERE) is False
    assert may(decider(allow(), deny(host=THERE)), Op.READ)
    assert may(decider(allow(), deny(who=B)), Op.READ)


@pytest.mark.parametrize("operation", list(AclOperation)[2:])
def test_implied_operations(operation: AclOperation) -> None:
    for requested in list(AclOperation)[3:]:
        describes = requested == Op.DESCRIBE and operation in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
        describes_configs = requested == Op.DESCRIBE_CONFIGS and operation == Op.ALTER_CONFIGS
        itself = operation in (requested, Op.ALL)
        assert may(decider(allow(operation)), requested) == (itself or describes or describes_configs)
        assert may(decider(allow(Op.ALL), deny(operation)), requested) == (not itself), "deny implies nothing"


def test_any_resource_of_a_type() -> None:
    def some(*acls: Acl, everyone: bool = False) -> bool:
        return decider(*acls, everyone=everyone).allows_any(A, HERE, Op.WRITE, TOPIC)

    assert not some() and some(everyone=True)
    assert (
        some(allow(Op.WRITE)) and some(allow(Op.ALL)) and not some(allow(Op.READ)) and not some(allow(Op.WRITE, who=B))
    )
    assert some(allow(Op.WRITE, "p", PREFIXED)) and some(allow(Op.WRITE, "*"))
    assert not some(allow(Op.WRITE), deny(Op.WRITE)) and some(allow(Op.WRITE), deny(Op.WRITE, "u"))
    assert not some(allow(Op.WRITE), deny(Op.ALL, "*")) and not some(allow(Op.WRITE, "*"), deny(Op.ALL, "*"))
    assert not some(allow(Op.WRITE, "team-a"), deny(Op.WRITE, "team", PREFIXED))
    assert not some(allow(Op.WRITE, "team-a", PREFIXED), deny(Op.WRITE, "team", PREFIXED))
    assert not some(allow(Op.WRITE, "team", PREFIXED), deny(Op.WRITE, "team", PREFIXED))
    assert some(allow(Op.WRITE, "team", PREFIXED), deny(Op.WRITE, "team-a", PREFIXED))
    assert some(allow(Op.WRITE, "team", PREFIXED), deny(Op.WRITE, "team"))
    assert some(allow(Op.WRITE, "*"), deny(Op.WRITE, "h", PREFIXED)), "the wildcard still applies"
    assert not decider(allow(Op.WRITE)).allows_any(A, HERE, Op.WRITE, GROUP)


def test_decision_cache_follows_changes_and_is_bounded() -> None:
    acls = store()
    authorizer = StandardAuthorizer(acls, AuthorizerSettings())
    for is_there in (True, False, True):
        assert may(authorizer, Op.READ) is not is_there
        assert authorizer.allows_any(A, HERE, Op.READ, TOPIC) is not is_there
        acls.add([allow()], 0) if is_there else acls.remove([allow()], 0)
        assert may(authorizer, Op.READ) is is_there
        assert authorizer.allows_any(A, HERE, Op.READ, TOPIC) is is_there
    for number in range(DECISIONS_MAX + 10):
        assert not may(authorizer, Op.READ, f"t{number}")
    assert len(authorizer._decided) <= DECISIONS_MAX
    authorizer._decided.clear()
    assert not may(authorizer, Op.READ, "t" * 30_000)
    assert not authorizer._decided, "10,000 of these would be as many times 30 kB"


# ---- comparison with linear searches

names = st.sampled_from(["*", "a", "ab"]) | st.text("ab*", max_size=4)
entries = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([A, B, "User:*"]),
    st.sampled_from([HERE, THERE, "*"]),
    st.sampled_from([Op.ALL, Op.READ, Op.WRITE, Op.DESCRIBE]),
    st.sampled_from([ALLOW, DENY]),
)
filters = st.builds(
    AclFilter,
    st.sampled_from([1, TOPIC, GROUP, CLUSTER, 77]),
    st.none() | names,
    st.sampled_from([ANY, MATCH, LITERAL, PREFIXED, 77]),
    st.sampled_from([None, A, B, "User:*", "a"]),
    st.sampled_from([None, HERE, THERE, "*"]),
    st.sampled_from([1, Op.ALL, Op.READ, 77]),
    st.sampled_from([1, ALLOW, DENY, 77]),
)


def covers(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PREFIXED:
        return name[: len(acl.resource_name)] == acl.resource_name
    return acl.resource_name in ("*", name)


def naive_decision(acls: list[Acl], requested: tuple[str, str, AclOperation, int, str], everyone: bool) -> bool:
    who, host, operation, kind, name = requested
    about = [acl for acl in acls if acl.resource_type == kind and covers(acl, name)]
    if not about:
        return everyone
    mine = [acl for acl in about if acl.principal in (who, "User:*") and acl.host in (host, "*")]
    if any(acl.permission_type == DENY and acl.operation in (operation, Op.ALL) for acl in mine):
        return False
    enough = {operation, Op.ALL} | ({Op.READ, Op.WRITE, Op.DELETE, Op.ALTER} if operation == Op.DESCRIBE else set())
    return any(acl.permission_type == ALLOW and acl.operation in enough for acl in mine)


@given(st.lists(entries, max_size=12), names, st.sampled_from([A, B]), st.booleans(), st.data())
def test_decisions_match_a_linear_search(acls: list[Acl], name: str, who: str, everyone: bool, data: Any) -> None:
    authorizer = decider(*acls, everyone=everyone)
    for operation, kind in itertools.product((Op.READ, Op.DESCRIBE, Op.DELETE), (TOPIC, GROUP)):
        requested = who, HERE, operation, kind, name
        assert authorizer.allows(*requested) == naive_decision(acls, requested, everyone), requested


@given(st.lists(entries, max_size=12), st.sampled_from([A, B]))
def test_allows_any_matches_a_search_over_names(acls: list[Acl], who: str) -> None:
    """Over all names that the patterns distinguish, without the wildcard, which is decided separately."""
    acls = [
        acl for acl in acls if acl.operation != Op.DESCRIBE and (acl.resource_name, acl.pattern_type) != ("*", LITERAL)
    ]
    acls = [acl for acl in acls if acl.resource_name]
    alphabet = [text for size in (1, 2, 3, 4) for text in map("".join, itertools.product("ab*", repeat=size))]
    # A prefix also matches names beyond those of the literal patterns.
    candidates = [*alphabet, *(name + "#" for name in alphabet)]
    authorizer = decider(*acls)
    expected = any(
        naive_decision(acls, (who, HERE, Op.WRITE, TOPIC, name), False) for name in candidates if name != "*"
    )
    found = authorizer.allows_any(who, HERE, Op.WRITE, TOPIC)
    assert found or not expected
    if not any(acl.permission_type == DENY for acl in acls):
        assert found == expected


def naive_match(wanted: AclFilter, acl: Acl) -> bool:
    """Kafka's two filters, field by field."""
    if wanted.resource_type not in (1, acl.resource_type):
        return False
    if wanted.pattern_type not in (ANY, MATCH, acl.pattern_type):
        return False
    if wanted.resource_name is not None:
        if wanted.pattern_type in (ANY, acl.pattern_type):
            if wanted.resource_name != acl.resource_name:
                return False
        elif not covers(acl, wanted.resource_name):
            return False
    return all(
        requested in (anything, there)
        for requested, anything, there in (
            (wanted.principal, None, acl.principal),
            (wanted.host, None, acl.host),
            (wanted.operation, 1, acl.operation),
            (wanted.permission_type, 1, acl.permission_type),
        )
    )


@given(st.lists(entries, max_size=12), filters)
def test_filters_match_a_linear_search(acls: list[Acl], wanted: AclFilter) -> None:
    found = store(*acls).find(wanted)
    assert len(found) == len(set(found))
    assert set(found) == {acl for acl in acls if naive_match(wanted, acl)}


@given(st.lists(st.tuples(st.booleans(), entries), max_size=20))
def test_adding_removing_and_replaying(changes: list[tuple[bool, Acl]]) -> None:
    acls, model = store(), list[Acl]()
    for is_added, acl in changes:
        if is_added:
            acls.add([acl, acl], 0)
            model += [acl] * (acl not in model)
        else:
            acls.remove(acls.find(AclFilter(*acl)), 0)
            model = [one for one in model if one != acl]
        assert set(acls.find(AclFilter())) == set(model) and len(acls.find(AclFilter())) == len(model)
    records = [record for written in log_of(acls).batches for record in written]
    again = store()
    for record in records:
        again.replay(record)
    assert again._ids == acls._ids and again._by_id == acls._by_id and again._by_principal == acls._by_principal
    assert all(again._by_principal.values()) and sum(map(len, again._by_principal.values())) == len(model)
    for kind, of_type in again._by_type.items():
        assert of_type.by_pattern == acls._by_type[kind].by_pattern
        assert (
            of_type.prefixes
            == acls._by_type[kind].prefixes
            == sorted(name for pattern, name in of_type.by_pattern if pattern == PREFIXED)
        )


@given(st.lists(st.text("ab", max_size=5), unique=True).map(sorted), st.text("ab", max_size=6))
def test_prefixes(known: list[str], name: str) -> None:
    assert list(prefixes_of(name, known)) == [one for one in reversed(known) if name.startswith(one)]


# ---- the log


def test_change_is_durable_before_it_applies() -> None:
    acls = store(allow())
    (first,) = log_of(acls).batches
    (record,) = first
    assert isinstance(record, AccessControlEntryRecord) and record.id == (1).to_bytes(16, "big")
    acls.add([allow()], 0)
    assert len(log_of(acls).batches) == 1, "an existing entry is not written again"
    log_of(acls).is_broken = True
    for change in (lambda: acls.add([deny()], 0), lambda: acls.remove([allow()], 0)):
        with pytest.raises(StorageError):
            change()
        assert acls.find(AclFilter()) == [allow()]
    log_of(acls).is_broken = False
    acls.remove([allow(), allow()], 0)
    assert log_of(acls).batches[1] == [RemoveAccessControlEntryRecord(id=record.id)] and not acls.find(AclFilter())


def test_concurrent_changes_neither_duplicate_nor_remove_twice() -> None:
    """Large changes run in steps, between which other requests change entries."""
    acls = store(allow())
    adding = acls.adding([deny(), allow(name="u")], 0)
    next(adding)
    acls.add([deny()], 0)
    steps.run(resumed(adding))
    removing = acls.removing(acls.find(AclFilter()), 0)
    next(removing)
    acls.remove([deny()], 0)
    steps.run(resumed(removing))
    written = list(itertools.chain.from_iterable(log_of(acls).batches))
    ids = [record.id for record in written if isinstance(record, AccessControlEntryRecord)]
    assert len(ids) == 3, "one each"
    assert sorted(record.id for record in written if isinstance(record, RemoveAccessControlEntryRecord)) == sorted(ids)
    assert not acls.find(AclFilter())


def resumed(begun: Steps[None]) -> Steps[None]:
    """Runs the rest of a generator."""
    yield from begun


def test_too_many_changes_in_a_request_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 50
    assert CHANGES_MAX == 10_000
    monkeypatch.setattr("ottla.broker.security.acls.CHANGES_MAX", limit)
    acls = store(*(allow(name=f"t{number}") for number in range(limit)))
    with pytest.raises(Refused) as caught:
        acls.add([allow(name=f"u{number}") for number in range(limit + 1)], 0)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION and len(acls.find(AclFilter())) == limit
    acls.add([allow(name="t1"), allow(name="u"), *(allow(name=f"t{number}") for number in range(limit))], 0)
    everything = acls.find(AclFilter())
    with pytest.raises(Refused) as caught:
        acls.remove(everything, 0)
    assert caught.value.code is ErrorCode.INVALID_REQUEST and len(acls.find(AclFilter())) == limit + 1
    acls.remove([*everything[1:], *everything[1:]], 0)
    assert acls.find(AclFilter()) == everything[:1]


# ---- the configuration

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def settings(release: str = "ottla", **configs: str) -> AuthorizerSettings | None:
    named = {name.replace("_", "."): text for name, text in configs.items()}
    return authorizer_settings(Config(named, profile=profile(release)))


def test_super_users_are_parsed() -> None:
    assert settings() is None and settings(super_users="User:a") is None and settings(authorizer_class_name=" ") is None
    assert settings(authorizer_class_name=STANDARD) == (frozenset(), False)
    found = settings(
        authorizer_class_name=f" {STANDARD} ",
        super_users=" User:a; User:b,c ;;Service:x:y;",
        allow_everyone_if_no_acl_found="TRUE",
    )
    assert found == (frozenset(("User:a", "User:b,c", "Service:x:y")), True)
    assert settings("2.8", authorizer_class_name="kafka.security.authorizer.AclAuthorizer") is not None


@pytest.mark.parametrize(
    ("release", "configs", "text"),
    [
        (
            "4.3",
            {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"},
            "Invalid value kafka.security.authorizer.AclAuthorizer for configuration authorizer.class.name: "
            f"Class kafka.security.authorizer.AclAuthorizer could not be found; expected one of {STANDARD}",
        ),
        (
            "2.3",
            {"authorizer_class_name": STANDARD},
            f"Invalid value {STANDARD} for configuration authorizer.class.name: Class {STANDARD} could not be found; "
            "expected one of kafka.security.auth.SimpleAclAuthorizer",
        ),
        (
            "ottla",
            {"authorizer_class_name": STANDARD, "super_users": "User:a;b"},
            "super.users: expected a string in format principalType:principalName but got b",
        ),
        (
            "ottla",
            {"authorizer_class_name": STANDARD, "allow_everyone_if_no_acl_found": "yes"},
            "Invalid value [hidden] for configuration allow.everyone.if.no.acl.found: "
            "Expected value to be either true or false",
        ),
    ],
)
def test_invalid_authorizer_configs_are_one_line(release: str, configs: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(release, **configs)
    assert str(caught.value) == text


def test_authorizer_configs_are_described_like_unknown_configs() -> None:
    """Only if set, with an unknown type and without a value."""
    config = Config()
    own = ("super.users", "allow.everyone.if.no.acl.found")
    assert not set(own) & set(config.names())
    config = Config({"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"})
    assert set(own) <= set(config.names())
    for name in own:
        entry = config.describe(name)
        assert (entry.value, entry.type, entry.sensitive, entry.read_only) == (None, 0, True, True)
