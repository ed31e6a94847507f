"""The vectors in `docs/vectors` are what the SDK's machine does, and find out a machine that does otherwise."""

import json
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.schemas.validating import faults
from tests.worker import mutants
from tests.worker.vectors.making import changed
from tests.worker.vectors.player import FOLDER, Json, Player, vectors, written

from batonpass.codec.bodies import HeartbeatBody, JoinBody, ReportBody
from batonpass.codec.requests import read_heartbeat, read_join
from batonpass.core.state.ids import MemberId
from batonpass.worker.protocol import Phase
from batonpass.worker.protocol.machine import ON_REFUSAL

ANEW = "if that is right, write it down with `python -m tests.worker.vectors --write`"
OF_THE_MACHINE = sorted(
    set(mutants.MUTANTS)
    - {
        # These are in what is around the machine.
        "confirms_before_it_stops",
        "does_not_listen",
        "joins_once_more_after_a_lost_answer",
        "keeps_its_id",
        "says_goodbye_first",
    }
)


def played(vector: Json) -> list[Json]:
    """Return the steps of a vector as they come out now."""
    found: list[Json] = json.loads(json.dumps(Player(vector).replay(vector)))
    return found


def without_windows(steps: list[Json]) -> list[Json]:
    """Return steps without the times between which they may come."""
    return [{name: value for name, value in step.items() if name != "between_ms"} for step in steps]


@pytest.mark.parametrize("path", vectors(), ids=lambda path: path.stem)
def test_the_machine_does_what_the_vector_says(path: Path) -> None:
    vector = written(path)
    assert played(vector) == without_windows(vector["steps"])


@pytest.mark.parametrize("seed", [1, 20, 300])
@pytest.mark.parametrize("path", vectors(), ids=lambda path: path.stem)
def test_the_jitter_of_retries_changes_nothing_but_times(path: Path, seed: int) -> None:
    vector = written(path)
    vector["settings"]["jitter_seed"] = seed
    for found, step in zip(played(vector), vector["steps"], strict=True):
        earliest, latest = step.pop("between_ms", [step["at_ms"]] * 2)
        assert earliest <= found["at_ms"] <= latest
        assert found | {"at_ms": step["at_ms"]} == step


def test_the_files_are_what_the_scenes_come_to() -> None:
    assert [path.name for path in changed()] == [], ANEW


def test_the_files_are_as_the_schema_says() -> None:
    schema = json.loads((FOLDER / "schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert {path.stem: [error.message for error in validator.iter_errors(written(path))] for path in vectors()} == {
        path.stem: [] for path in vectors()
    }
    broken = written(FOLDER / "join.json") | {"moon_phase": "full"}
    assert not validator.is_valid(broken)


NOT_SENT = {"join": {"reason"}, "heartbeat": set[str](), "report": {"lag"}}
"""Fields that the SDK leaves to others: it reports positions, of which a lag is made, and gives no reason to join."""


def sent() -> list[tuple[str, Json]]:
    """Return the bodies of the vectors, each with the kind of its request."""
    steps = [step for path in vectors() for step in written(path)["steps"]]
    return [(out["kind"], out["body"]) for step in steps for out in step["out"] if "body" in out]


def test_the_coordinator_reads_what_is_sent() -> None:
    assert {kind for kind, _ in sent()} == {"join", "heartbeat"}
    for kind, body in sent():
        read = read_join if kind == "join" else read_heartbeat
        assert read(MemberId("run-1"), json.dumps(body).encode(), tasks_max=1_000).unknown_fields == ()


def test_refusals_are_those_that_a_coordinator_sends() -> None:
    """All but the one of a type that does not exist yet."""
    events = [step["event"] for path in vectors() for step in written(path)["steps"]]
    refusals = [event["body"] for event in events if event["type"] == "answer" and event["status"] >= 400]
    assert len(refusals) > 20
    assert {body["type"]: faults("problem", body) for body in refusals if body["type"] != "something-new"} == {
        body["type"]: [] for body in refusals if body["type"] != "something-new"
    }


def test_what_the_coordinator_reads_is_sent() -> None:
    found: dict[str, set[str]] = {"join": set(), "heartbeat": set(), "report": set()}
    for kind, body in sent():
        found[kind].update(body)
        for report in body.get("tasks", {}).values():
            found["report"].update(report)
    for kind, struct in (("join", JoinBody), ("heartbeat", HeartbeatBody), ("report", ReportBody)):
        read = {field.encode_name for field in msgspec.structs.fields(struct)}
        assert read - found[kind] == NOT_SENT[kind], (
            f"{kind}: worker/protocol/machine.py sends it (what a member says of itself: its callback `numbers`), and a "
            "scene in tests/worker/vectors shows it"
        )


def test_the_vectors_show_everything() -> None:
    steps = [step for path in vectors() for step in written(path)["steps"]]
    schema = json.loads((FOLDER / "schema.json").read_text())["$defs"]
    for name, shown in (
        ("event", {step["event"]["type"] for step in steps}),
        ("out", {out["type"] for step in steps for out in step["out"]}),
    ):
        kinds = [kind["properties"]["type"] for kind in schema[name]["oneOf"]]
        assert shown == {one for kind in kinds for one in kind.get("enum", [kind.get("const")])}
    assert {step["phase"] for step in steps} == {phase.value for phase in Phase} - {Phase.NEW.value}
    refused = {step["event"]["body"]["type"] for step in steps if step["event"].get("status", 0) >= 400}
    assert refused >= set(ON_REFUSAL)


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_a_machine_that_breaks_the_protocol_does_not_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each defect that the conformance kit finds over HTTP is found here without a server."""
    monkeypatch.setattr(mutants, "put", monkeypatch.setattr)
    mutants.MUTANTS[name][0]()
    assert not all(passes(path) for path in vectors())


def passes(path: Path) -> bool:
    """Whether the machine, as it is now, does what a vector says."""
    vector = written(path)
    try:
        return played(vector) == without_windows(vector["steps"])
    except (LookupError, RuntimeError, StopIteration):
        # It asked for a run that there is not, was answered a request that it has not sent, or does not rest.
        return False
