"""Documentation in DescribeConfigs: Ottla's own, one line for each config that it acts on and one for all others."""

from __future__ import annotations

from ottla.broker.config.definitions import BEHAVIOUR_PREFIX, facts
from ottla.broker.config.docs import DOCS, NO_EFFECT, documentation
from ottla.broker.config.values import ACTED_ON
from ottla_testing.each import each


def test_behaviours_and_configs_without_an_effect_have_a_common_text() -> None:
    behaviours = {name for name in ACTED_ON if name.startswith(BEHAVIOUR_PREFIX)}
    assert set(DOCS) | behaviours == ACTED_ON and len({documentation(name) for name in behaviours}) == 1
    assert documentation("num.io.threads") == NO_EFFECT


@each("name", sorted(DOCS))
def test_each_doc_is_one_short_sentence(name: str) -> None:
    line = DOCS[name]
    assert len(line) <= 120 and line.endswith(".") and "\n" not in line and line[0].isupper()


def test_topic_and_broker_config_share_their_doc() -> None:
    for name, fact in facts("topic").items():
        if name in DOCS and fact.synonyms:
            assert DOCS[name] == DOCS[fact.synonyms[0]]
