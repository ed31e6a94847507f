"""The faults can be told apart, the relay fails as it says, and every fault that a job does not bear is named."""

from collections.abc import Iterator

import httpx2 as httpx
import pytest
from tests.benchmarks.streams.faults import SETUPS, names, table, wrong
from tests.benchmarks.streams.measures import Figures
from tests.benchmarks.streams.relay import (
    HUGE_BYTES,
    Fault,
    Relay,
    cut,
    failed,
    huge,
    in_turn,
    lost,
    passed,
    rubbish,
    task_left_out,
    unknown_process,
)
from tests.clients.stub_coordinator import StubCoordinator

QUESTION = {
    "plugin_version": "1",
    "tasks": [{"id": "0_0"}, {"id": "0_1"}],
    "members": [{"id": "p", "tasks": {}}],
    "config": {"max_warmup_replicas": 2},
}


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A relay before a coordinator that puts both tasks on the one process."""
    coordinator = StubCoordinator()
    made = Relay(coordinator.url)
    yield made
    made.close()
    coordinator.close()


def ask(relay: Relay) -> httpx.Response:
    """Ask as the plug-in does, on a connection of its own."""
    headers = {"connection": "close"}
    return httpx.post(f"{relay.url}/v1/groups/totals/advice", json=QUESTION, headers=headers, timeout=10)


def test_every_fault_has_a_name_of_its_own() -> None:
    """So that it can be done alone."""
    assert len(set(names())) == len(names()) > 15


def test_the_relay_passes_on_who_asks_and_what_is_answered(relay: Relay) -> None:
    assert ask(relay).json()["assignment"]["p"]["active"] == ["0_0", "0_1"]
    assert relay.versions == {"1"}


@pytest.mark.parametrize("fault", [lost, cut])
def test_an_answer_that_ends_in_the_middle_or_never_begins_is_none(relay: Relay, fault: Fault) -> None:
    with relay.failing(fault), pytest.raises(httpx.HTTPError):
        ask(relay)
    assert ask(relay).is_success


def test_a_relay_that_is_away_refuses_and_comes_back_at_the_same_address(relay: Relay) -> None:
    """As a coordinator does that is started again."""
    with relay.away(), pytest.raises(httpx.ConnectError):
        ask(relay)
    assert ask(relay).is_success


def test_answers_are_wrong_one_way_after_the_other(relay: Relay) -> None:
    with relay.failing(in_turn(failed, rubbish, huge, task_left_out, unknown_process, passed)):
        assert ask(relay).status_code == 500
        assert "<html>" in ask(relay).text
        assert len(ask(relay).content) == HUGE_BYTES
        assert ask(relay).json()["assignment"]["p"]["active"] == ["0_0"]
        assert len(ask(relay).json()["assignment"]) == 2
        assert ask(relay).is_success


def row(**figures: object) -> Figures:
    """Return the figures of a fault that the job has borne, but for these."""
    silence = {of: {"tasks": 1, "p50": 100, "max": 200} for of in ("lost", "moved", "unmoved")}
    whole = {"fault": "away", "what": "it is away", "note": "", "failure": "", "happened": True, "watched_s": 30.0}
    counts = dict.fromkeys(("rebalances", "advised", "no_answers", "moved", "needed", "missing", "doubled"), 0)
    return whole | counts | {"rest_s": 9.0, "wrong_totals": 0, "reasons": [], "silence_ms": silence} | figures


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({}, []),
        ({"missing": 2}, ["2 missing"]),
        ({"doubled": 1, "wrong_totals": 3}, ["1 doubled", "3 wrong_totals"]),
        ({"happened": False}, ["no leader's log has 'no answer for'"]),
        ({"rest_s": None}, ["not at rest after 30 s"]),
        ({"rest_s": None, "failure": "nobody asked"}, ["nobody asked"]),
        (
            {"silence_ms": {"unmoved": {"tasks": 1, "p50": 1, "max": 9_000}}},
            ["a task that nobody moved stood still for 9.0 s"],
        ),
    ],
)
def test_a_fault_that_a_job_does_not_bear_is_named(figures: Figures, expected: list[str]) -> None:
    trial = next(trial for setup in SETUPS for trial in setup.trials if trial.name == "away")
    assert wrong(trial, row(**figures)) == expected


def test_the_table_has_a_line_for_each_fault() -> None:
    alone = {"fault": "broker-assigns", "what": "it is not asked", "note": "refused", "wrong": []}
    *_, first, second = table([row(wrong=["2 missing"], reasons=["it answered 500"]), alone])
    assert first == (
        "| `away`: it is away | 0 rebalances, 0 by advice, 0 without; `it answered 500` | 0 / 0 | 9 s | 0.2 | 0.2 | 0.2"
        " | 0 / 0 | 2 missing |"
    )
    assert second == "| `broker-assigns`: it is not asked | refused | - | - | - | - | - | - | held |"
