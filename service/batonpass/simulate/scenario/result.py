"""The result of a scenario, for tables, JSON and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from batonpass.percentiles import nearest_rank
from batonpass.simulate.scenario.play import Played
from batonpass.simulate.scenario.tally import Tally
from batonpass.simulate.tasks import name_of

WORST: Final = 10


@dataclass(frozen=True, slots=True)
class Result:
    """What a scenario cost. Downtimes are over all tasks, those that never stopped included; times are milliseconds.

    ``rest_ms`` counts from the beginning to the rest after the last step, None: not at rest in the end. ``missed`` are
    the steps that could not be taken.
    """

    name: str
    title: str
    tasks: int
    lasted_ms: int
    rest_ms: int | None
    moves: int
    handovers: int
    warmups: int
    generations: int
    downtime_ms: int
    stopped: int
    downtime_p50_ms: int
    downtime_p99_ms: int
    downtime_max_ms: int
    bytes_restored: int
    worst: tuple[tuple[str, int], ...]
    missed: tuple[str, ...]


def result_of(played: Played, tally: Tally) -> Result:
    """Return the result of a scenario; ``tally`` is what its records say."""
    outcome, scenario = played.outcome, played.scenario
    downtimes = sorted(outcome.downtime_ms.values())
    worst = sorted(outcome.downtime_ms.items(), key=lambda item: (-item[1], item[0]))[:WORST]
    return Result(
        name=scenario.name,
        title=scenario.title or scenario.name,
        tasks=scenario.task_count,
        lasted_ms=played.end_ms - played.start_ms,
        rest_ms=outcome.rest_ms,
        moves=tally.moves,
        handovers=outcome.handovers,
        warmups=tally.warmups,
        generations=tally.generations,
        downtime_ms=sum(downtimes),
        stopped=sum(one > 0 for one in downtimes),
        downtime_p50_ms=nearest_rank(downtimes, 50),
        downtime_p99_ms=nearest_rank(downtimes, 99),
        downtime_max_ms=downtimes[-1],
        bytes_restored=outcome.restored_records * scenario.record_bytes,
        worst=tuple((name_of(task), down) for task, down in worst if down),
        missed=played.missed_in_words(),
    )


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of the picture: a member had a task, from and to in milliseconds since the beginning."""

    task: str
    member: str
    state: str
    from_ms: int
    to_ms: int


def bars_of(played: Played) -> list[Bar]:
    """Return which member had which task when, in the order of tasks and time; ``state`` is running or restoring."""
    bars = []
    for stint in sorted(played.stints, key=lambda one: (one.task, max(one.from_ms, played.start_ms))):
        to_ms = played.end_ms if stint.to_ms is None else stint.to_ms
        if to_ms > played.start_ms:
            state = "running" if stint.is_running else "restoring"
            begin = max(0, stint.from_ms - played.start_ms)
            bars.append(Bar(name_of(stint.task), stint.client, state, begin, to_ms - played.start_ms))
    return bars


def picture(bars: Sequence[Bar], result: Result) -> Any:
    """Return a plotly figure: a row for each task, a colour for each member, gaps where no member ran the task."""
    import plotly.graph_objects as go  # noqa: PLC0415 - of an extra, and slow to import
    from plotly.colors import qualitative  # noqa: PLC0415

    members = sorted({bar.member for bar in bars})
    palette = (*qualitative.T10, *qualitative.Set2, *qualitative.Dark24)
    figure = go.Figure()
    for place, member in enumerate(members):
        for state, pattern in (("running", ""), ("restoring", "/")):
            mine = [bar for bar in bars if bar.member == member and bar.state == state]
            if not mine:
                continue
            figure.add_bar(
                base=[bar.from_ms / 60_000 for bar in mine],
                x=[(bar.to_ms - bar.from_ms) / 60_000 for bar in mine],
                y=[bar.task for bar in mine],
                orientation="h",
                name=member,
                showlegend=state == "running",
                legendgroup=member,
                marker={"color": palette[place % len(palette)], "pattern": {"shape": pattern}, "line": {"width": 0}},
                customdata=[[bar.from_ms / 60_000, bar.to_ms / 60_000] for bar in mine],
                hovertemplate="%{y}: "
                + member
                + f" {state}<br>%{{customdata[0]:.2f}} to %{{customdata[1]:.2f}} min<extra></extra>",
            )
    tasks = list(dict.fromkeys(bar.task for bar in bars))
    figure.update_layout(
        barmode="overlay",
        title={"text": f"{escape(result.title)}<br><sup>hatched: restores it; white: nobody runs it</sup>"},
        xaxis={"title": {"text": "minutes since the beginning"}, "range": [0, result.lasted_ms / 60_000]},
        yaxis={"title": {"text": "task"}, "categoryorder": "array", "categoryarray": tasks[::-1], "type": "category"},
        height=max(360, 160 + 16 * len(tasks)),
        template="plotly_white",
        legend={"title": {"text": "member"}},
        bargap=0.15,
    )
    return figure
