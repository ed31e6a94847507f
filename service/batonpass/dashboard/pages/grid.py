"""Tasks by members in full, and the search for a task or a member."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from batonpass.dashboard.pages.group_state import GroupState, group_state
from batonpass.dashboard.request_context import RequestContext, linked
from batonpass.dashboard.view_models.grid import BLOCK, LEGEND, LISTED_MAX, fits_matrix, listing, matrix


async def show_grid(context: RequestContext) -> Response:
    """Show what each member has: all of a small group, a block of a large one, or tiles to choose a block from."""
    seen = await group_state(context)
    part, begin = context.asked("part"), context.asked_number("begin", 0)
    chosen = _chosen(seen, part, begin)
    is_matrix = fits_matrix(len(seen.members), len(chosen)) and bool(chosen)
    is_listed = not is_matrix and bool(chosen) and len(chosen) <= LISTED_MAX
    return context.show(
        "grid.html",
        title="Grid",
        tab="grid",
        seen=seen,
        legend=LEGEND,
        tally=seen.tally(),
        matrix=matrix(chosen, seen.members, seen.copies, seen.target) if is_matrix else None,
        rows=listing(chosen, seen.copies) if is_listed else [],
        part=part,
        begin=begin,
        end=begin + len(chosen) - 1,
        block=BLOCK,
        more=bool(part) and f"{part}_{begin + BLOCK}" in set(seen.tasks),
        missing=context.asked("missing"),
    )


def _chosen(seen: GroupState, part: str, begin: int) -> list[str]:
    """Return the tasks to show one by one: those of a block, else all of them."""
    if not part:
        return list(seen.tasks)
    wanted = {f"{part}_{number}" for number in range(begin, begin + BLOCK)}
    return [task for task in seen.tasks if task in wanted]


async def find(context: RequestContext) -> Response:
    """Go to the task or the member that a text names: by its id, its instance id, or the beginning of either."""
    text = context.asked("q")
    seen = await group_state(context)
    root, names = context.dashboard.config.root_path, context.client.names
    if text in set(seen.tasks):
        return RedirectResponse(linked(root, "groups", context.group, "tasks", text), 303)
    ids = [str(one["member_id"]) for one in seen.members]
    exact = [one for one in ids if text in {one, names(one)}]
    fitting = exact or [one for one in ids if text and (one.startswith(text) or names(one).startswith(text))]
    if len(fitting) == 1:
        return RedirectResponse(linked(root, "groups", context.group, "members", fitting[0]), 303)
    if fitting:
        return RedirectResponse(linked(root, "groups", context.group, "members", q=text), 303)
    return RedirectResponse(linked(root, "groups", context.group, "grid", missing=text or None), 303)


async def show_warmups(context: RequestContext) -> Response:
    """Show every copy that is being restored, and every move that waits for a slot."""
    seen = await group_state(context)
    explained = await context.client.get(context.at("explain"), limit=100)
    return context.show(
        "warmups.html", title="Warmups", tab="warmups", seen=seen, explained=explained, warmups=seen.warmups
    )
