"""Errors that the worker's own code raised. Their methods are its code too: they may raise, and refuse what is set."""


def words_of(error: BaseException) -> str:
    """Return what an error says; one that cannot be put into words does not hide that there was one."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - the error at hand is what matters
        return "it cannot be put into words"


def add_note(error: BaseException, note: str) -> None:
    """Add a note, also to an error that is a frozen dataclass, whose `add_note` raises."""
    object.__setattr__(error, "__notes__", [*getattr(error, "__notes__", ()), note])
