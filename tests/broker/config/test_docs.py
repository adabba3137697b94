"""Documentation in DescribeConfigs: Ottla's own, one line for each config that it acts on and one for all others."""

from __future__ import annotations

from ottla.broker.config.definitions import BEHAVIOUR_PREFIX, facts
from ottla.broker.config.docs import DOCS, NO_EFFECT, documentation
from ottla.broker.config.values import ACTED_ON
from ottla_testing.each import each


def test_exactly_the_configs_acted_on_are_documented() -> None:
    named = {name for name in ACTED_ON if not name.startswith(BEHAVIOUR_PREFIX)}
    assert set(DOCS) == named, "broker/config/docs.py must have exactly the configs acted on"
    assert documentation(f"{BEHAVIOUR_PREFIX}old_formats") and documentation("num.io.threads") == NO_EFFECT


@each("name", sorted(DOCS))
def test_each_doc_is_one_short_sentence(name: str) -> None:
    line = DOCS[name]
    assert len(line) <= 120 and line.endswith(".") and "\n" not in line and line[0].isupper()


def test_topic_and_broker_config_share_their_doc() -> None:
    for name, fact in facts("topic").items():
        if name in DOCS and fact.synonyms:
            assert DOCS[name] == DOCS[fact.synonyms[0]]
