"""A Kafka Streams application in a few lines, for tests of what is written of its group."""

import random
from dataclasses import dataclass, field

from tests.core.test_streams import RUNS, process

from batonpass.core.state.inputs import StreamsProcess
from batonpass.core.state.replies import StreamsAdvice


@dataclass
class Application:
    """What its processes run and have, and what a rebalance does to it."""

    luck: random.Random
    tasks: int
    running: dict[str, str] = field(default_factory=dict)
    copies: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per process, what it has of tasks that it does not run, and how far that is behind."""
    tailed: dict[str, set[str]] = field(default_factory=dict)
    """Per process, the copies that it keeps tailing."""
    threads: dict[str, int] = field(default_factory=dict)
    """The processes that have more than one."""

    def report(self) -> list[StreamsProcess]:
        """Return what the leader says of everybody."""
        return [
            process(
                name,
                {**copies, **{task: RUNS for task, owner in self.running.items() if owner == name}},
                threads=self.threads.get(name, 1),
            )
            for name, copies in sorted(self.copies.items())
        ]

    def obey(self, advice: StreamsAdvice) -> None:
        """Take the assignment: what somebody else still runs is revoked first, and given in the next rebalance."""
        wanted = {task: str(name) for name, of in advice.assignment.items() for task in of["active"]}
        assert sorted(wanted) == sorted(f"0_{number}" for number in range(self.tasks))
        assert sum(len(of["active"]) for of in advice.assignment.values()) == self.tasks
        for task, name in wanted.items():
            owner = self.running.get(task)
            if owner is not None and owner != name:
                del self.running[task]
                self.copies[owner][task] = 0
            elif owner is None:
                self.running[task] = name
                self.copies[name].pop(task, None)
        for name, of in advice.assignment.items():
            assert not {*of["standby"], *of["warmup"]} & {*of["active"]}
            self.tailed[str(name)] = {*of["standby"], *of["warmup"]}

    def pass_time(self) -> None:
        """Let copies that are tailed come closer, and all others fall behind."""
        for name, copies in self.copies.items():
            for task in self.tailed.get(name, set()):
                if self.running.get(task) != name:
                    copies[task] = max(0, copies.get(task, 100_000) - 40_000)
            for task in copies.keys() - self.tailed.get(name, set()):
                copies[task] += 500

    def resize(self, tasks: int) -> None:
        """Let the application have so many tasks; of what it has no longer, nothing is reported."""
        self.tasks = tasks
        left = {f"0_{number}" for number in range(tasks)}
        self.running = {task: owner for task, owner in self.running.items() if task in left}
        for name, copies in self.copies.items():
            self.copies[name] = {task: lag for task, lag in copies.items() if task in left}
        self.tailed = {name: tailed & left for name, tailed in self.tailed.items()}

    def trouble(self) -> None:
        """Let something happen: a process comes, goes, comes back, or Kafka decides something by itself."""
        kind = self.luck.choice(["join", "join", "kill", "own", "none"])
        if kind == "join" and len(self.copies) < 5:
            kept = {f"0_{n}": self.luck.choice([0, 50, 5_000]) for n in range(self.tasks) if self.luck.random() < 0.3}
            name = f"p{self.luck.randrange(6)}"
            if name not in self.copies:
                self.copies[name] = kept
        elif kind == "kill" and len(self.copies) > 1:
            name = self.luck.choice(sorted(self.copies))
            del self.copies[name]
            self.tailed.pop(name, None)
            self.running = {task: owner for task, owner in self.running.items() if owner != name}
        elif kind == "own":
            for task in self.luck.sample(range(self.tasks), k=min(2, self.tasks)):
                name = self.luck.choice(sorted(self.copies))
                self.running[f"0_{task}"] = name
                self.copies[name].pop(f"0_{task}", None)
