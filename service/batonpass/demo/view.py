"""The display while a demonstration goes on: a live picture in a terminal, plain lines elsewhere."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from batonpass.client import ApiError
from batonpass.demo.experiment import Experiment, now_ms
from batonpass.demo.figures import PhaseFigures
from batonpass.demo.tables import phase_table
from batonpass.terminal import Screen, screen

REFRESH_S: Final = 0.5
HISTORY_S: Final = 30
LINES: Final = 6
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")


class View:
    """The display of a run: lines with the seconds since the beginning, which suit files, pipes and scripts."""

    def __init__(self, console: Screen) -> None:
        self._console = console
        self._begun = time.monotonic()

    def tell(self, sentence: str) -> None:
        """Show what is being done."""
        self._console.say(f"{time.monotonic() - self._begun:7.1f} s  {sentence}")

    def phase_done(self, phase: PhaseFigures) -> None:
        """Show the results of a phase, in a live display above the live part."""
        self._console.print(phase_table(phase))

    @contextlib.asynccontextmanager
    async def showing(self, experiment: Experiment) -> AsyncIterator[None]:
        """Show an experiment for as long as the block lasts."""
        kind = "with state" if experiment.job.stateful else "without state"
        rate = experiment.job.tasks * experiment.job.rate
        self.tell(f"{experiment.job.group}: {experiment.job.tasks} tasks {kind}, {rate:,} records a second")
        yield


class LiveView(View):
    """A live table of tasks, under the latest sentences and measurements."""

    def __init__(self, console: Screen) -> None:
        super().__init__(console)
        self._said: deque[str] = deque(maxlen=LINES)
        self._live: Live | None = None

    def tell(self, sentence: str) -> None:
        line = f"{time.monotonic() - self._begun:6.1f} s  {sentence}"
        self._said.append(line)
        if self._live is None:
            self._console.say(line)

    @contextlib.asynccontextmanager
    async def showing(self, experiment: Experiment) -> AsyncIterator[None]:
        """Show the experiment, twice a second."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._live = live
            refreshing = asyncio.ensure_future(self._refresh(experiment, live))
            try:
                yield
            finally:
                refreshing.cancel()
                await asyncio.wait((refreshing,))
                self._live = None

    async def _refresh(self, experiment: Experiment, live: Live) -> None:
        members: list[dict[str, Any]] = []
        state: dict[str, Any] = {}
        while True:
            with contextlib.suppress(ApiError):
                state, members = await experiment.group.state(), await experiment.group.members()
            live.update(frame(experiment, state, members, list(self._said)), refresh=True)
            await asyncio.sleep(REFRESH_S)


def frame(experiment: Experiment, state: Mapping[str, Any], members: list[dict[str, Any]], said: list[str]) -> Group:
    """Return one picture of an experiment."""
    names = sorted(str(one["instance_id"]) for one in members)
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    reads, ledger = experiment.reader.reads, experiment.outputs.ledger
    doing = experiment.phase_name or "nothing is done, to have something to compare with"
    head = Text.assemble(
        ("Batonpass ", "bold"),
        f"{experiment.job.group}: {experiment.job.tasks} tasks, {experiment.job.tasks * experiment.job.rate:,} records a second. ",
        (doing, "bold yellow"),
    )
    foot = Text(
        f"{state_words(state)}   outputs {ledger.put_out:,}   reads {reads.asked:,}, {reads.unanswered} unanswered\n"
        + "\n".join(said)
    )
    return Group(head, _tasks(experiment, members, colours), foot)


def state_words(state: Mapping[str, Any]) -> str:
    """Return the state of the group in a few words."""
    if not state:
        return "the group is being made"
    if state["at_rest"]:
        return "the group rests"
    return f"the group is {state['state']}: {state['warmups']} warmups, {state['moves_pending']} moves to come"


def _tasks(experiment: Experiment, members: list[dict[str, Any]], colours: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("task", "runs on", "copies (records behind)", f"outputs of the last {HISTORY_S} s", "longest gap"):
        table.add_column(column, no_wrap=True, justify="right" if column == "longest gap" else "left")
    now = now_ms()
    for number, task in enumerate(experiment.job.task_ids):
        owner = next((one for one in members if _runs(one, task)), None)
        name = "" if owner is None else str(owner["instance_id"])
        silence = (
            experiment.outputs.ledger.longest_silence(number, (experiment.since_ms, now - 400))
            if experiment.since_ms
            else 0
        )
        table.add_row(
            task,
            Text(name or "nobody", style=colours.get(name, "bold red")),
            _copies(members, task, colours),
            _strip(experiment, number, now, colours),
            Text(f"{silence:,} ms" if silence else "", style="red" if silence > 1_000 else ""),
        )
    return table


def _runs(member: Mapping[str, Any], task: str) -> bool:
    return any(grant["task"] == task for grant in member["assignment"]["active"])


def _copies(members: list[dict[str, Any]], task: str, colours: Mapping[str, str]) -> Text:
    found = Text()
    for member in members:
        for role in ("standby", "warmup"):
            if task in member["assignment"][role]:
                lag = (member["reports"].get(task) or {}).get("lag")
                behind = "?" if lag is None else f"{lag:,}"
                name = str(member["instance_id"])
                found.append(f"{name} {'warms up ' if role == 'warmup' else ''}({behind}) ", style=colours[name])
    return found


def _strip(experiment: Experiment, number: int, now: int, colours: Mapping[str, str]) -> Text:
    """Return the last seconds of a task's outputs as blocks, one for each second, in the colours of the writers."""
    strip, ledger = Text(), experiment.outputs.ledger
    # Only whole seconds that have been read: otherwise the picture would flicker.
    upto = (now - 700) // 1_000 * 1_000
    for second in range(upto - HISTORY_S * 1_000, upto, 1_000):
        window = (second, second + 1_000)
        count = ledger.put_out_within(number, window)
        block = BLOCKS[min(len(BLOCKS) - 1, round(count / experiment.job.rate * (len(BLOCKS) - 2)))]
        strip.append(block, style=colours.get(ledger.writer_at(number, window[1]) or "", ""))
    return strip


def view_for(*, as_json: bool) -> View:
    """Return a live view on a terminal, else plain lines; with JSON, on standard error."""
    console = screen(stderr=as_json, plain_width=110)
    return LiveView(console) if console.is_terminal and not as_json else View(console)
