"""How far something is that takes a while, for people at a terminal."""

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from batonpass.terminal import screen


def progress(left: str, right: str = "", *, wanted: bool = True) -> Progress:
    """Return a display of how far something is, on a terminal's standard error; it is gone at the end.

    ``left`` and ``right`` of the bar are formats of rich's fields of a task.
    """
    console = screen(stderr=True)
    texts = [TextColumn(text, markup=False) for text in (left, right)]
    columns = (texts[0], BarColumn(), texts[1], TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not (wanted and console.is_terminal))
