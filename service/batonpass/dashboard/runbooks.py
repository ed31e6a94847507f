"""The runbooks as pages: headlines and alerts name them, and they are needed when little else can be reached."""

from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from starlette.responses import Response

from batonpass.client import Refused
from batonpass.dashboard.request_context import RequestContext, linked


async def show_runbook(context: RequestContext) -> Response:
    name = str(context.request.path_params["runbook"])
    root_path = context.dashboard.config.root_path
    if name not in _names():
        raise Refused(404, {"detail": f"there is no runbook {name}"})
    return context.show("runbook.html", title=name, live=False, text=_rendered(name, root_path))


def _folder() -> Path:
    """Return the folder of the runbooks: in the installed package, or beside the sources."""
    package = Path(__file__).parent.parent
    carried = package / "runbooks"
    return carried if carried.is_dir() else package.parent.parent / "docs" / "runbooks"


@cache
def _names() -> frozenset[str]:
    return frozenset(file.stem for file in _folder().glob("*.md"))


@cache
def _rendered(name: str, root_path: str) -> str:
    """Return a runbook in HTML. Of its links those stay that lead to other runbooks."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse((_folder() / f"{name}.md").read_text(encoding="utf-8"))
    for token in tokens:
        for child in token.children or []:
            stem = str(child.attrGet("href") or "").removesuffix(".md")
            if child.type == "link_open":
                child.attrs = {"href": linked(root_path, "runbooks", stem)} if stem in _names() else {}
    return str(markdown.renderer.render(tokens, markdown.options, {}))
