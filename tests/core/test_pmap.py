"""The persistent mapping: it is a dictionary that an update leaves as it was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batonpass.core.state.pmap import PMap

KEYS = st.integers(min_value=0, max_value=60)
CHANGES = st.lists(st.dictionaries(KEYS, st.none() | st.integers(), max_size=12), max_size=40)


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_a_mapping_agrees_with_a_dictionary_through_any_history(
    start: dict[int, int], changes: list[dict[int, int | None]]
) -> None:
    model, mapping = dict(start), PMap(start)
    for change in changes:
        for key, value in change.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        mapping = mapping.updated(change)
        assert dict(mapping) == model
        assert len(mapping) == len(model)
        assert sorted(mapping) == sorted(model)
        for key in range(62):
            assert (key in mapping) == (key in model)
            assert mapping.get(key) == model.get(key)
            assert mapping.get(key, -7) == model.get(key, -7)
            if key in model:
                assert mapping[key] == model[key]
            else:
                with pytest.raises(KeyError):
                    mapping[key]


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_an_update_never_changes_what_came_before(start: dict[int, int], changes: list[dict[int, int | None]]) -> None:
    mapping = PMap(start)
    history = [(mapping, dict(mapping))]
    for change in changes:
        mapping = mapping.updated(change)
        history.append((mapping, dict(mapping)))
    assert all(dict(one) == held for one, held in history)


def test_the_dictionary_that_it_was_made_of_may_change() -> None:
    source = {1: "a"}
    mapping = PMap(source)
    source[1] = "b"
    source[2] = "c"
    assert dict(mapping) == {1: "a"}


def test_an_update_of_nothing_is_the_same_mapping() -> None:
    mapping = PMap({1: "a"})
    assert mapping.updated({}) is mapping
    assert mapping.without(2) is mapping
    assert dict(mapping.without(1)) == {}
    assert dict(mapping.having(2, "b")) == {1: "a", 2: "b"}


def test_two_histories_of_the_same_content_are_equal() -> None:
    one = PMap({1: "a"}).having(2, "b").without(1)
    other = PMap({2: "b"})
    assert one == other
    assert one == {2: "b"}
    assert one != PMap({2: "c"})


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_what_changed_since_turns_the_older_into_the_newer(
    start: dict[int, int], changes: list[dict[int, int | None]]
) -> None:
    older = newer = PMap(start)
    for change in changes:
        newer = newer.updated(change)
        assert older.updated(older_to_newer := newer.changed_since(older)) == newer
        assert all(newer.get(key) is not older.get(key) for key in older_to_newer)
    assert older.changed_since(older) == {}


@pytest.mark.parametrize("updates", [1, 20, 33, 40, 65, 70, 120])
def test_what_changed_is_known_across_folds(updates: int) -> None:
    older = PMap({n: n for n in range(100)}).updated({n: -n for n in range(5)})
    newer, other = older, older.updated(dict.fromkeys(range(50, 90), -7))
    for number in range(updates):
        newer = newer.updated({number: 1_000 + number, 200 + number: number, 99: None if number % 2 else 5})
    for one, two in ((newer, older), (older, newer), (newer, other), (other, newer)):
        expected = {key for key in {*one, *two} if one.get(key) is not two.get(key)}
        assert one.changed_since(two).keys() == expected
        assert two.updated(one.changed_since(two)) == one


def test_what_changed_between_mappings_that_share_nothing() -> None:
    assert PMap({1: "a", 2: "b"}).changed_since(PMap({2: "b", 3: "c"})) == {1: "a", 3: None}


def test_a_mapping_prints_its_items() -> None:
    """Two decisions are compared by this printed form."""
    assert repr(PMap({1: "a", 2: "b"}).without(1)) == "PMap({2: 'b'})"


def test_a_key_put_back_is_there_once() -> None:
    mapping = PMap({n: n for n in range(100)})
    for _ in range(3):
        mapping = mapping.without(5).having(5, 50)
        mapping = mapping.updated({n: n + 1 for n in range(200, 240)})
    assert len(mapping) == len(list(mapping)) == 140
    assert mapping[5] == 50
