"""Times, numbers, codes and names as people read them."""

from datetime import UTC, datetime
from unittest.mock import MagicMock

import pytest

from batonpass.core.state.reasons import Why
from batonpass.dashboard import words
from batonpass.dashboard.shared_client import SharedClient

MEMBER = "16bb8df5-e7c2-49cc-a91f-c06e697663c5"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_whole_spans_have_no_fractions() -> None:
    """What a clock beside it counts in seconds is shown in seconds."""
    assert [words.span_whole(ms) for ms in (400, 2_400, 61_000)] == ["0 s", "2 s", "1 min 1 s"]


@pytest.mark.parametrize(
    ("value", "text"), [(None, words.DASH), (0, "0"), (12_000, "12,000"), (2.5, "2.5"), (1_234.5, "1,234"), (2.0, "2")]
)
def test_numbers_have_their_thousands_apart(value: float | None, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (812, "812"), (4_115, "4.1k"), (12_000, "12k"), (3_400_000, "3.4M"), (2e9, "2.0G")]
)
def test_small_cells_hold_short_numbers(value: float, text: str) -> None:
    """A lag has to fit into a cell of the grid."""
    assert words.short(value) == text


def test_instants_are_written_relative_to_now() -> None:
    """Half a second either way is now, and what is due is never ago."""
    assert words.ago("2026-11-20T11:59:48Z", NOON) == "12 s ago"
    assert words.ago("2026-11-20T12:03:00Z", NOON) == "in 3 min"
    assert words.ago("2026-11-20T12:00:00.3Z", NOON) == "now"
    assert words.soon("2026-11-20T11:59:48Z", NOON) == "now"
    assert words.ago(None) == words.DASH


def test_every_reason_has_words() -> None:
    assert set(words.WHY) >= {one.value for one in Why}
    assert (words.why("something-newer"), words.why(None)) == ("something newer", "")


def test_members_are_called_by_their_instance_ids() -> None:
    """A UUID is cut where no name is known; a name that people chose never is."""
    names = words.Names()
    assert (names(MEMBER), names("worker-with-a-long-name"), names(None)) == (
        "16bb8df5…",
        "worker-with-a-long-name",
        words.DASH,
    )
    names.learn(MEMBER, "demo-2")
    names.learn(MEMBER, None)
    names.learn(MEMBER, "6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    assert names(MEMBER) == "demo-2"


def test_names_are_short_where_there_is_little_room_and_keep_their_ends() -> None:
    pods = ["payments-7f9c8d6b5-abcde", "payments-7f9c8d6b5-fghij"]
    assert list(words.briefly(pods).values()) == ["…abcde", "…fghij"]
    assert words.briefly(["demo-1", "demo-2"]) == {"demo-1": "demo-1", "demo-2": "demo-2"}
    assert words.briefly(["a-single-name-that-is-long"]) == {"a-single-name-that-is-long": "a-s…-is-long"}
    alike = ["one-and-the-same-12345678", "one-and-a-same-12345678x", "one-and-b-same-12345678x"]
    assert words.briefly(alike)[alike[0]] == "…th…12345678"
    assert len(set(words.briefly(alike).values())) == 3


def test_sentences_name_members_and_keep_their_marks() -> None:
    names = words.Names({MEMBER: "demo-2", "m": "x"})
    assert names.within(f"{MEMBER} runs orders_0 (on {MEMBER}).") == "demo-2 runs orders_0 (on demo-2)."
    assert names.within("more from me") == "more from me"


def test_of_ever_more_members_the_names_learned_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "NAMES_MAX", 2)
    names, client = words.Names(), SharedClient(MagicMock(), "token")
    for member in ("a-1", "b-1", "a-1", "c-1"):
        names.learn(member, member[0])
    assert [names(member) for member in ("a-1", "b-1", "c-1")] == ["a", "b-1", "c"]
    for number in range(100):
        client._note_looked_for([str(number)])
        assert len(client._looked_for) <= 3
