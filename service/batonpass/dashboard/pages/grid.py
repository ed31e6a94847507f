"""Tasks by members in full, and the search for a task or a member."""

import asyncio
from typing import Final

from starlette.responses import RedirectResponse, Response

from batonpass.dashboard.pages.group_state import group_state
from batonpass.dashboard.request_context import RequestContext, linked
from batonpass.dashboard.view_models.grid import LISTED_MAX, SORTS, TONE_WORDS, fits_matrix, rows_of
from batonpass.dashboard.words import counted

HELD_MAX: Final = 1_000
"""The most moves that a coordinator lists."""


async def show_grid(context: RequestContext) -> Response:
    """Show what each member has: all of a small group, the tasks that were asked for, or tiles to choose from."""
    seen = await group_state(context)
    part, tone, text, by = (context.asked(name) for name in ("part", "tone", "q", "sort"))
    is_chosen = bool(part or tone or text or by)
    by = by if by in SORTS else next(iter(SORTS))
    found = [one for one in seen.tasks if text in one and part in ("", one.rpartition("_")[0])]
    chosen = [one for one in found if tone in ("", seen.tones[one])]
    tones = counted(TONE_WORDS, (seen.tones[one] for one in found))
    tasks = context.part(
        sorted(chosen, key=lambda one: SORTS[by](one, seen.copies)), len(seen.tasks) if seen.fits else LISTED_MAX
    )
    is_matrix = fits_matrix(len(seen.members), len(tasks.entries)) and bool(chosen) and (is_chosen or seen.fits)
    return context.show(
        "grid.html",
        seen=seen,
        tally=tones,
        tones=tones,
        tone=tone,
        tasks=tasks,
        is_matrix=is_matrix,
        rows=rows_of(tasks.entries, seen.copies, seen.target),
        is_chosen=is_chosen,
        part=part,
        q=text,
        sort=by,
        sorts=list(SORTS),
    )


async def find(context: RequestContext) -> Response:
    """Go to the task or the member that a text names: by its id, its instance id, or a part of either."""
    text = context.asked("q")
    seen = await group_state(context)
    root, names = context.dashboard.config.root_path, context.client.names
    if text in set(seen.tasks):
        return RedirectResponse(linked(root, "groups", context.group, "tasks", text), 303)
    ids = [str(one["member_id"]) for one in seen.members]
    exact = [one for one in ids if text in {one, names(one)}]
    fitting = exact or [one for one in ids if text and (text in one or text in names(one))]
    if len(fitting) == 1:
        return RedirectResponse(linked(root, "groups", context.group, "members", fitting[0]), 303)
    return RedirectResponse(
        linked(root, "groups", context.group, "members" if fitting else "grid", q=text or None), 303
    )


async def show_warmups(context: RequestContext) -> Response:
    """Show every copy that is being restored, and every move that waits for a slot."""
    seen, explained, events = await asyncio.gather(
        group_state(context),
        context.client.get(context.at("explain"), limit=HELD_MAX),
        context.client.newest_events(context.group),
    )
    return context.show(
        "warmups.html",
        seen=seen,
        explained=explained,
        warmups=context.part(seen.warmups(events["events"], context.now)),
        held=context.part(explained["held_back"], name="held"),
        held_total=sum(explained["held_back_by_reason"].values()),
    )
