"""The audit in pandas on one core: what it is measured against, and a second opinion on what it finds.

It reads the same rows by the same queries, made flat by the same code, holds them to the same laws, and comes to the
same findings and measures. What it leaves out is what the benchmark's audit leaves out as well: replay, what-if,
assignments, and whatever is written.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from itertools import chain
from typing import NamedTuple

from tests.benchmarks.audit import alone_downtime, alone_laws, alone_log, alone_measures, alone_read, alone_story
from tests.benchmarks.audit.digest import told

from batonpass.audit.checks import edges, told_beyond
from batonpass.audit.database import rows
from batonpass.audit.findings import Finding, GroupDay, cut
from batonpass.audit.measures import notices


class Audited(NamedTuple):
    """What came of a day: what each group's came to, what was found, and how much more was found than is kept."""

    groups: tuple[GroupDay, ...]
    findings: tuple[Finding, ...]
    left_out: int


def audit(url: str) -> Audited:
    """Audit the day."""
    day = alone_read.read(url)
    story = alone_story.followed(alone_story.story(day))
    runs, warmups = alone_story.runs(story), alone_story.warmups(story)
    moved = alone_laws.handovers(day, runs)
    names = alone_downtime.identities(day)
    gaps = alone_downtime.gaps(day, runs, names)
    gone = alone_measures.departures(day, names)
    worst = alone_measures.flapping(gone)
    days = alone_measures.group_measures(day, runs, warmups, gaps, worst)
    found = chain(
        alone_log.log_laws(day),
        edges(day.plan),
        told_beyond(partial(rows, day.url), day.plan),
        alone_log.unreadable(day),
        alone_log.member_epochs(day),
        alone_laws.unproven(
            day,
            chain(
                alone_laws.one_owner(day, story),
                alone_laws.cold_promotions(day, moved),
                alone_laws.handovers_per_target(day, moved),
                alone_laws.warmup_budgets(day, warmups),
            ),
        ),
        alone_downtime.stuck_tasks(gaps),
        alone_measures.flapping_members(gone, worst),
        alone_measures.stuck_warmups(day, warmups),
        notices(days, None),
    )
    findings, left_out = cut((), found)
    return Audited(tuple(day for _, day in sorted(days.items())), findings, left_out)


def main(url: str) -> None:
    """Audit the day, and print what came of it."""
    begun = time.monotonic()
    done = audit(url)
    # What is not the work is this interpreter with its libraries, which have been imported by now.
    came_to = {"left_out": done.left_out, "work_s": time.monotonic() - begun}
    sys.stdout.write(json.dumps(told(done.groups, done.findings) | came_to) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
