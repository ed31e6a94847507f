"""Scenario files: YAML to a scenario, with errors that name the place and the reason."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from batonpass.codec.bodies import Share
from batonpass.core.state.durations import SPAN, parse_span
from batonpass.core.state.errors import InvalidConfig
from batonpass.core.state.policy import parse_config
from batonpass.simulate.scenario.model import (
    RECORD_BYTES,
    RESTORE_PER_SECOND,
    Act,
    Scenario,
    SimulatedSubtopology,
    Step,
    Worker,
)

TASKS_MAX: Final = 20_000
EVERYBODY: Final = "all"
_AWAY: Final = "20s"
_EVERY: Final = "60s"
_GOES = frozenset({Act.LEAVE, Act.CRASH, Act.RESTART, Act.DRAIN})
_COMES = frozenset({Act.JOIN, Act.RETURN})

Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
Span = Annotated[str, msgspec.Meta(pattern=SPAN, description="A span of time with its unit: 500ms, 90s, 10m, 1h30m.")]
# The pattern of a span would be held against "rest" as well, if this were a union of the two.
Until = Annotated[
    str, msgspec.Meta(pattern=f"^rest$|{SPAN}", description="A span of time; or rest: until nothing is to come.")
]
Whole = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")]


class TasksEntry(msgspec.Struct, forbid_unknown_fields=True):
    """One subtopology. `records`, `rate` and `load` are one number for all of its tasks, or one number for each."""

    partitions: Count
    stateful: bool = True
    records: Whole | list[Whole] = 1_000_000
    rate: Rate | list[Rate] = 10.0
    load: Rate | list[Rate] | None = None


class MembersEntry(msgspec.Struct, forbid_unknown_fields=True):
    """Worker processes. With `count` they are called name-1, name-2, ...; a list of values of a tag goes round."""

    name: Name
    count: Count | None = None
    capacity: Share = 1.0
    tags: dict[str, str | list[str]] = {}
    restore_per_second: Positive = RESTORE_PER_SECOND
    fenced: bool = False


class StepEntry(msgspec.Struct, forbid_unknown_fields=True, rename={"during": "for"}):
    """One thing that happens at `at`: exactly one of join, leave, drain, restart, crash, lose, load and coordinator."""

    at: Span
    join: MembersEntry | str | None = None
    leave: str | list[str] | None = None
    drain: str | list[str] | None = None
    restart: str | list[str] | None = None
    crash: str | list[str] | None = None
    lose: dict[str, str] | None = None
    load: Rate | None = None
    coordinator: Literal["restart"] | None = None
    deadline: Span | None = None
    away: Span | None = None
    every: Span | None = None
    back: Span | None = None
    disk: Literal["kept", "lost"] | None = None
    during: Span | None = None
    subtopology: Whole | None = None


class ScenarioFile(msgspec.Struct, forbid_unknown_fields=True):
    """A scenario of `batonpass simulate --scenario`: a group at rest, and what befalls it."""

    scenario: Literal[1]
    tasks: Annotated[list[TasksEntry], msgspec.Meta(min_length=1)]
    members: Annotated[list[MembersEntry], msgspec.Meta(min_length=1)]
    title: str = ""
    group: Name = "simulated"
    config: dict[str, Any] = {}
    record_bytes: Count = RECORD_BYTES
    timeline: list[StepEntry] = []
    until: Until = "rest"


class _EachKeyOnce(yaml.SafeLoader):
    """A loader that refuses a key that stands twice in a mapping: else the last one would count, in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - its caller's
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} stands here twice", key.start_mark)
            seen.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


class UnreadableScenario(Exception):
    """A scenario file cannot be understood; ``faults`` has the path and the reason of each fault."""

    def __init__(self, source: str, faults: Iterable[tuple[str, str]]) -> None:
        self.source = source
        self.faults = tuple(faults)
        super().__init__(
            "; ".join(f"{source}: {path}: {reason}" if path else f"{source}: {reason}" for path, reason in self.faults)
        )


def read_scenario(path: Path) -> Scenario:
    """Return the scenario of a file.

    Raises:
        UnreadableScenario: when the file does not exist, is not YAML, or is not a valid scenario.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableScenario(str(path), [("", reason)]) from None
    return parse_scenario(text, source=str(path), name=path.stem)


def parse_scenario(text: str, *, source: str = "scenario", name: str = "scenario") -> Scenario:
    """Return the scenario that a text in YAML holds.

    Raises:
        UnreadableScenario: when it holds none.
    """
    try:
        said = _EachKeyOnce(text).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
        raise UnreadableScenario(source, [(place, f"no YAML: {getattr(error, 'problem', None) or error}")]) from None
    try:
        file = msgspec.convert(said, ScenarioFile)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        # If a key is not text, only its mapping can be named.
        path = path.rpartition("` in `")[2]
        raise UnreadableScenario(source, [(path.rstrip("`").removeprefix("$").lstrip("."), _plain(reason))]) from None
    made = _Making(file, name)
    scenario = made.scenario()
    if made.faults:
        raise UnreadableScenario(source, made.faults)
    return scenario


def _plain(reason: str) -> str:
    """Return msgspec's reason; if a span was expected, return what a span looks like."""
    if SPAN in reason or SPAN.replace("\\", "\\\\") in reason:
        rest = " (or rest)" if "rest" in reason else ""
        return f"no span of time{rest}; write for example 500ms, 90s, 10m or 1h30m"
    return reason


class _Making:
    """Turns a file into a scenario, and collects its faults: paths in the file, and reasons."""

    def __init__(self, file: ScenarioFile, name: str) -> None:
        self._file = file
        self._name = name
        self._workers: dict[str, Worker] = {}
        self._present: list[str] = []
        # The steps of the timeline so far, each behind its path.
        self._timeline: list[tuple[str, Step]] = []
        self.faults: list[tuple[str, str]] = []

    def _wrong(self, path: str, reason: str) -> None:
        self.faults.append((path, reason))

    def scenario(self) -> Scenario:
        """Return the scenario; of use only while there are no faults."""
        file = self._file
        subtopologies = tuple(self._subtopology(place, entry) for place, entry in enumerate(file.tasks))
        if sum(subtopology.partitions for subtopology in subtopologies) > TASKS_MAX:
            self._wrong("tasks", f"there may be {TASKS_MAX} tasks at most")
        for place, entry in enumerate(file.members):
            self._present += self._members(f"members[{place}]", entry)
        self._config()
        for place, said in sorted(enumerate(file.timeline), key=lambda one: parse_span(one[1].at)):
            path = f"timeline[{place}]"
            self._timeline += [(path, step) for step in self._steps(path, said)]
        self._look_who_is_there()
        return Scenario(
            name=self._name,
            title=file.title,
            group=file.group,
            subtopologies=subtopologies,
            workers=tuple(self._workers.values()),
            present=tuple(self._present),
            config=file.config,
            steps=tuple(step for _, step in self._in_time()),
            until_ms=None if file.until == "rest" else parse_span(file.until),
            record_bytes=file.record_bytes,
        )

    def _in_time(self) -> list[tuple[str, Step]]:
        return sorted(self._timeline, key=lambda one: one[1].at_ms)

    def _follow(self, there: dict[str, None]) -> Iterator[tuple[str, Step]]:
        """Yield the steps in the order of time; ``there`` has the members that are there before each.

        A member that drains counts as gone here.
        """
        for path, step in self._in_time():
            yield path, step
            if step.act in _GOES:
                there.pop(step.worker, None)
            elif step.act in _COMES:
                there[step.worker] = None

    def _up(self, at_ms: int) -> list[str]:
        """Return the members that are there at an instant, by the steps so far."""
        there = dict.fromkeys(self._present)
        for _, step in self._follow(there):
            if step.at_ms > at_ms:
                break
        return list(there)

    def _look_who_is_there(self) -> None:
        """Find the impossible steps: those of a member that is not there, and joins of a member that is."""
        there = dict.fromkeys(self._present)
        for path, step in self._follow(there):
            is_there = step.worker in there
            if step.act in (_COMES if is_there else _GOES):
                wrong = "there already" if is_there else "not there"
                self._wrong(path, f"member {step.worker!r} is {wrong} at {step.at_ms / 1_000:g}s")

    def _subtopology(self, place: int, entry: TasksEntry) -> SimulatedSubtopology:
        of_each: dict[str, list[float]] = {}
        for field in ("records", "rate", "load"):
            value = getattr(entry, field)
            of_each[field] = value if isinstance(value, list) else [] if value is None else [value] * entry.partitions
            if isinstance(value, list) and len(value) != entry.partitions:
                self._wrong(f"tasks[{place}].{field}", f"has {len(value)} values for {entry.partitions} partitions")
        rate, load = tuple(map(float, of_each["rate"])), tuple(map(float, of_each["load"]))
        if not entry.stateful:
            return SimulatedSubtopology((0,) * entry.partitions, (0.0,) * entry.partitions, stateful=False, load=load)
        return SimulatedSubtopology(tuple(map(int, of_each["records"])), rate, load=load)

    def _members(self, path: str, entry: MembersEntry) -> list[str]:
        names = [entry.name] if entry.count is None else [f"{entry.name}-{one}" for one in range(1, entry.count + 1)]
        for place, name in enumerate(names):
            if name == EVERYBODY:
                self._wrong(f"{path}.name", "`all` means everybody")
            elif name in self._workers:
                self._wrong(f"{path}.name", f"there is a member {name!r} already")
            tags = {
                key: one if isinstance(one, str) else one[place % len(one)] for key, one in entry.tags.items() if one
            }
            self._workers[name] = Worker(name, entry.capacity, tags, entry.restore_per_second, entry.fenced)
        return names

    def _config(self) -> None:
        try:
            parse_config(self._file.config)
        except InvalidConfig as error:
            self.faults += [(str(path), str(reason)) for path, reason in error.errors]

    def _steps(self, path: str, entry: StepEntry) -> Iterator[Step]:
        acts = ("join", "leave", "drain", "restart", "crash", "lose", "load", "coordinator")
        said = [name for name in acts if getattr(entry, name) is not None]
        if len(said) != 1:
            self._wrong(path, f"name exactly one of {', '.join(acts)}; this names {' and '.join(said) or 'none'}")
            return
        self._unused(path, entry, said[0])
        at_ms = parse_span(entry.at)
        match said[0]:
            case "join":
                yield from self._joins(path, entry, at_ms)
            case "load":
                yield from self._loads(path, entry, at_ms)
            case "coordinator":
                yield Step(at_ms, Act.COORDINATOR)
            case "restart":
                every, away = parse_span(entry.every or _EVERY), parse_span(entry.away or _AWAY)
                for place, name in enumerate(self._who(f"{path}.restart", entry.restart, at_ms)):
                    yield Step(at_ms + place * every, Act.RESTART, name)
                    yield Step(at_ms + place * every + away, Act.RETURN, name, keeps_disk=entry.disk != "lost")
            case "crash" | "lose":
                yield from self._crashes(path, entry, at_ms)
            case act:
                deadline_ms = parse_span(entry.deadline) if entry.deadline else None
                for name in self._who(f"{path}.{act}", getattr(entry, act), at_ms):
                    yield Step(at_ms, Act(act), name, deadline_ms=deadline_ms)

    def _joins(self, path: str, entry: StepEntry, at_ms: int) -> Iterator[Step]:
        if isinstance(entry.join, str):
            # A member that was here before, or a new one like the first of the file.
            if entry.join not in self._workers:
                like = self._file.members[0]
                self._members(f"{path}.join", msgspec.structs.replace(like, name=entry.join, count=None))
                yield Step(at_ms, Act.JOIN, entry.join)
            else:
                yield Step(at_ms, Act.RETURN, entry.join, keeps_disk=entry.disk != "lost")
        elif entry.join is not None:
            for name in self._members(f"{path}.join", entry.join):
                yield Step(at_ms, Act.JOIN, name)

    def _loads(self, path: str, entry: StepEntry, at_ms: int) -> Iterator[Step]:
        if entry.subtopology is not None and entry.subtopology >= len(self._file.tasks):
            self._wrong(f"{path}.subtopology", f"there are only {len(self._file.tasks)}, counted from 0")
            return
        yield Step(at_ms, Act.LOAD, factor=entry.load or 0.0, subtopology=entry.subtopology)
        if entry.during is not None:
            yield Step(at_ms + parse_span(entry.during), Act.LOAD, factor=1.0, subtopology=entry.subtopology)

    def _crashes(self, path: str, entry: StepEntry, at_ms: int) -> Iterator[Step]:
        if entry.lose is not None:
            lost = entry.lose.items()
            names = [name for name in self._up(at_ms) if lost <= dict(self._workers[name].tags).items()]
            if not names:
                self._wrong(f"{path}.lose", "no member that runs then has these tags")
        else:
            names = self._who(f"{path}.crash", entry.crash, at_ms)
        for name in names:
            yield Step(at_ms, Act.CRASH, name)
            if entry.back is not None:
                yield Step(at_ms + parse_span(entry.back), Act.RETURN, name, keeps_disk=entry.disk != "lost")

    def _who(self, path: str, said: str | list[str] | None, at_ms: int) -> list[str]:
        if said == EVERYBODY:
            return self._up(at_ms)
        names = [said] if isinstance(said, str) else list(said or ())
        unknown = [name for name in names if name not in self._workers]
        self.faults += [(path, f"there is no member {name!r}; there are {_some(self._workers)}") for name in unknown]
        return [name for name in names if name in self._workers]

    def _unused(self, path: str, entry: StepEntry, act: str) -> None:
        """Refuse fields that do not belong to the act."""
        means: Mapping[str, tuple[str, ...]] = {
            "deadline": ("drain",),
            "away": ("restart",),
            "every": ("restart",),
            "back": ("crash", "lose"),
            "disk": ("join", "restart", "crash", "lose"),
            "during": ("load",),
            "subtopology": ("load",),
        }
        for field, acts in means.items():
            if getattr(entry, field) is not None and act not in acts:
                shown = "for" if field == "during" else field
                self._wrong(f"{path}.{shown}", f"means nothing with {act}; it belongs to {' or '.join(acts)}")


def _some(names: Iterable[str]) -> str:
    known = sorted(names)
    return ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
