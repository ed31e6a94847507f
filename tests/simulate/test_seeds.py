"""What a seed stands for: every setting that a group may have, within what the product accepts."""

from dataclasses import fields

from batonpass.core.state.policy import GroupConfig, parse_config
from batonpass.simulate.seeds import draw

SEEDS = range(200)


def test_every_setting_of_a_group_is_drawn() -> None:
    known = {field.name for field in fields(GroupConfig)}
    for seed in SEEDS:
        config = draw(seed).config
        assert set(config) == known
        parse_config(config)


def test_a_setting_of_which_nothing_is_said_has_its_default_or_its_least_value() -> None:
    """So a new setting is tried in the worlds before a seed is written for it."""
    drawn = {draw(seed).config["max_drain_warmups"] for seed in SEEDS}
    assert drawn == {GroupConfig().max_drain_warmups, 1}
