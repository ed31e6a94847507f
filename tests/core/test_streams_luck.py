"""Whatever befalls a Kafka Streams application, every decision keeps the laws, and it finds its rest in balance."""

import os

import pytest
from tests.core.streams_luck import StreamsLuck

SEEDS = int(os.environ.get("BATONPASS_LUCK", "10"))
"""How many seeds are played; ``make soak`` plays more."""


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_bad_luck_breaks_a_law_or_keeps_an_application_from_its_rest(seed: int) -> None:
    """Processes, releases, answers, coordinators and operators, in the middle of moves."""
    luck = StreamsLuck(seed)
    luck.play(40)
    luck.peace()
