"""Scenario files: what they may say, and the errors for what they may not say."""

from pathlib import Path

import msgspec
import pytest
import yaml

from batonpass import schemas
from batonpass.simulate.scenario.model import Act
from batonpass.simulate.scenario.reading import (
    MembersEntry,
    ScenarioFile,
    TasksEntry,
    UnreadableScenario,
    parse_scenario,
    read_scenario,
)

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "scenarios").glob("*.yaml"))
HEAD = """
scenario: 1
tasks: [{partitions: 6, records: 100000, rate: 10}]
members: [{name: w, count: 3, tags: {zone: [a, b]}}]
"""


def faults_of(text: str) -> tuple[tuple[str, str], ...]:
    """Return what is wrong with a file."""
    with pytest.raises(UnreadableScenario) as caught:
        parse_scenario(text, source="day.yaml")
    assert str(caught.value).startswith("day.yaml: ")
    return caught.value.faults


def steps_of(timeline: str) -> list[tuple[int, Act, str]]:
    """Return the steps that a timeline comes to, with their times in seconds."""
    found = parse_scenario(f"{HEAD}\ntimeline:\n  - {timeline}\n")
    return [(step.at_ms // 1_000, step.act, step.worker) for step in found.steps]


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "autoscaler",
        "bad-day",
        "deploy",
        "hot-partition",
        "scale-out",
        "zone-loss",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_can_be_read(path: Path) -> None:
    found = read_scenario(path)
    assert found.name == path.stem
    assert found.title
    assert found.task_count
    assert found.present
    assert found.steps


def test_members_and_tags_go_round() -> None:
    found = parse_scenario(HEAD)
    assert found.present == ("w-1", "w-2", "w-3")
    assert [worker.tags for worker in found.workers] == [{"zone": "a"}, {"zone": "b"}, {"zone": "a"}]
    assert found.until_ms is None


def test_tasks_may_differ() -> None:
    text = HEAD.replace("records: 100000, rate: 10", "records: [1, 2, 3, 4, 5, 6], rate: 0.5")
    (subtopology,) = parse_scenario(text).subtopologies
    assert subtopology.records == (1, 2, 3, 4, 5, 6)
    assert subtopology.rate == (0.5,) * 6
    (bare,) = parse_scenario(HEAD.replace("records: 100000", "stateful: false, records: 100000")).subtopologies
    assert (bare.stateful, bare.records) == (False, (0,) * 6)


def test_a_rolling_restart_takes_one_after_the_other() -> None:
    """`restart: all` stops a member every minute and brings each back after twenty seconds, or as it says."""
    assert steps_of("{at: 1m, restart: all}")[:3] == [
        (60, Act.RESTART, "w-1"),
        (80, Act.RETURN, "w-1"),
        (120, Act.RESTART, "w-2"),
    ]
    assert steps_of("{at: 1m, restart: [w-2], away: 5s}") == [(60, Act.RESTART, "w-2"), (65, Act.RETURN, "w-2")]


def test_a_zone_is_lost_with_everybody_in_it() -> None:
    assert steps_of("{at: 10s, lose: {zone: a}, back: 1m}") == [
        (10, Act.CRASH, "w-1"),
        (10, Act.CRASH, "w-3"),
        (70, Act.RETURN, "w-1"),
        (70, Act.RETURN, "w-3"),
    ]


def test_all_in_a_step_means_the_members_present_then() -> None:
    """A member that comes back later is not meant."""
    steps = steps_of("{at: 5s, crash: w-2, back: 1h}\n  - {at: 10s, crash: all}")
    assert steps[1:3] == [(10, Act.CRASH, "w-1"), (10, Act.CRASH, "w-3")]


def test_load_ends_with_its_for() -> None:
    found = parse_scenario(f"{HEAD}\ntimeline: [{{at: 1m, load: 3, for: 5m}}]")
    assert [(step.at_ms, step.factor) for step in found.steps] == [(60_000, 3.0), (360_000, 1.0)]


def test_joins_leaves_drains_and_coordinator_restarts_are_steps() -> None:
    assert steps_of("{at: 1s, join: {name: x, count: 2}}") == [(1, Act.JOIN, "x-1"), (1, Act.JOIN, "x-2")]
    assert steps_of("{at: 1s, join: spare}") == [(1, Act.JOIN, "spare")]
    assert steps_of("{at: 1s, leave: w-1}") == [(1, Act.LEAVE, "w-1")]
    assert steps_of("{at: 1s, drain: w-1, deadline: 30s}") == [(1, Act.DRAIN, "w-1")]
    assert steps_of("{at: 1s, coordinator: restart}") == [(1, Act.COORDINATOR, "")]


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ("timeline: [{at: 5, crash: w-1}]", "timeline[0].at", "Expected `str`, got `int`"),
        ("timeline: [{at: soon, crash: w-1}]", "timeline[0].at", "no span of time; write for example"),
        ("timeline: [{at: 5s, crush: w-1}]", "timeline[0]", "Object contains unknown field `crush`"),
        ("timeline: [{at: 5s}]", "timeline[0]", "name exactly one of"),
        ("timeline: [{at: 5s, crash: w-1, leave: w-2}]", "timeline[0]", "this names leave and crash"),
        ("timeline: [{at: 5s, crash: w-9}]", "timeline[0].crash", "there is no member 'w-9'; there are w-1, w-2, w-3"),
        ("timeline: [{at: 5s, crash: w-1, away: 3s}]", "timeline[0].away", "belongs to restart"),
        ("timeline: [{at: 5s, leave: w-1, disk: lost}]", "timeline[0].disk", "belongs to join or restart or crash"),
        ("timeline: [{at: 5s, lose: {zone: z}}]", "timeline[0].lose", "no member that runs then has these tags"),
        ("timeline: [{at: 5s, load: 2, subtopology: 1}]", "timeline[0].subtopology", "there are only 1"),
        (
            "timeline: [{at: 5s, crash: w-1}, {at: 9s, leave: w-1}]",
            "timeline[1]",
            "member 'w-1' is not there at 9s",
        ),
        ("timeline: [{at: 5s, join: w-1}]", "timeline[0]", "member 'w-1' is there already at 5s"),
        ("config: {num_standby_replica: 1}", "config.num_standby_replica", "no such setting"),
        ("config: {num_standby_replicas: -1}", "config.num_standby_replicas", "out of range"),
        ("config: {no: 1}", "config", "Expected `str`"),
        ("timeline: [{at: 5s, join: {name: x, capacity: 5.0e-324}}]", "timeline[0].join.capacity", ">= 1e-06"),
        ("until: later", "until", "no span of time"),
    ],
)
def test_a_fault_is_shown_with_its_place(change: str, path: str, reason: str) -> None:
    found = faults_of(f"{HEAD}\n{change}")
    assert [place for place, _ in found] == [path]
    assert reason in found[0][1]


def test_a_key_that_stands_twice_is_refused_with_its_line() -> None:
    ((place, reason),) = faults_of(f"{HEAD}\nconfig:\n  num_standby_replicas: 1\n  num_standby_replicas: 2\n")
    assert place == f"line {HEAD.count(chr(10)) + 4}, column 3"
    assert "'num_standby_replicas' stands here twice" in reason


def test_a_file_that_is_no_yaml_is_refused_with_its_line() -> None:
    ((place, reason),) = faults_of("scenario: 1\ntasks: [\n")
    assert place.startswith("line 3")
    assert reason.startswith("no YAML")
    with pytest.raises(UnreadableScenario, match="No such file"):
        read_scenario(Path("nowhere.yaml"))


def test_all_faults_of_a_file_are_named_at_once() -> None:
    text = HEAD.replace("records: 100000", "records: [1]") + "config: {nope: 1}\ntimeline: [{at: 1s, crash: x}]"
    assert [place for place, _ in faults_of(text)] == ["tasks[0].records", "config.nope", "timeline[0].crash"]


def test_the_schema_is_what_is_read() -> None:
    """It is made of the very types that files are read into."""
    made = msgspec.json.schema(ScenarioFile)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:batonpass:schema:1:scenario",
        "title": "A scenario file",
        "description": made["$defs"]["ScenarioFile"]["description"],
    }
    assert schemas.load("scenario") == {**head, **made}


def test_every_default_may_be_written_out() -> None:
    """What the docs give as the value of a field that is left out is a value of it."""
    bare = yaml.safe_load(HEAD)
    whole = dict(bare)
    for field in msgspec.structs.fields(ScenarioFile):
        if not field.required and field.default is not msgspec.NODEFAULT:
            whole[field.encode_name] = field.default
    for entry, struct in ((whole["tasks"][0], TasksEntry), (whole["members"][0], MembersEntry)):
        for field in msgspec.structs.fields(struct):
            if field.default is not msgspec.NODEFAULT:
                entry.setdefault(field.encode_name, field.default)
    assert whole["until"] == "rest"
    found, plain = parse_scenario(yaml.safe_dump(whole)), parse_scenario(HEAD)
    assert (found.until_ms, found.subtopologies, found.workers) == (None, plain.subtopologies, plain.workers)


@pytest.mark.parametrize("until", ["rests", "the rest", "2", "1h rest", "9" * 400 + "d"])
def test_what_is_neither_a_span_nor_rest_is_no_end(until: str) -> None:
    expected = "no span of time (or rest); write for example 500ms, 90s, 10m or 1h30m"
    assert faults_of(f"{HEAD}until: '{until}'") == (("until", expected),)
