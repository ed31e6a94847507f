"""Sockets that a forked child must not keep open: a coordinator takes the end of a connection for a member's death.

A child that is forked, as by `multiprocessing` or a `ProcessPoolExecutor` (whose default on Linux is fork before Python
3.14), has a copy of every descriptor. Its copy of the long-poll's socket would keep that connection open after its
parent was killed. So each child begins by exchanging such copies for the null device. Their numbers stay taken, because
objects that were copied with them may close them once more. A program that is started anew (`subprocess`, ``spawn``,
``forkserver``) has no copies in the first place (PEP 446).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")

_single: dict[int, os.stat_result] = {}
_owners: WeakKeyDictionary[object, Callable[..., Iterable[int]]] = WeakKeyDictionary()
_forks = 0


def forks() -> int:
    """Return how often this process has forked."""
    return _forks


def close_in_children(descriptor: int) -> None:
    """Have an open socket closed in every child that is forked from now on; nobody has to say when it is closed here.

    Raises:
        OSError: when it is not open.
    """
    # Once it is closed here, its number may stand for something else, but not for the same file.
    _single[descriptor] = os.fstat(descriptor)


def close_all_in_children(owner: Owner, descriptors: Callable[[Owner], Iterable[int]]) -> None:
    """Do the same with all sockets that an owner has when a child is forked. The owner is not kept alive by this.

    ``descriptors`` is called in the child, and has to return at once.
    """
    _owners[owner] = descriptors


def _count() -> None:
    global _forks  # noqa: PLW0603 - a process has one count
    _forks += 1


def _close_single() -> None:
    copies = {descriptor for descriptor, opened in _single.items() if _is_still(descriptor, opened)}
    _single.clear()
    _close(copies)


def _close_of_owners() -> None:
    copies = {one for owner, descriptors in list(_owners.items()) for one in descriptors(owner)}
    _owners.clear()
    _close(copies)


def _is_still(descriptor: int, opened: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), opened)
    except OSError:
        return False


def _close(copies: set[int]) -> None:
    """Close them, and let their numbers stand for the null device."""
    # A socket that is closed already has the number -1.
    copies = {descriptor for descriptor in copies if descriptor >= 0}
    if not copies:
        return
    for descriptor in copies:
        with suppress(OSError):
            os.close(descriptor)
    # Only now: a process that had as many open files as it may have could not have opened one more.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in copies - {null}:
        os.dup2(null, descriptor, inheritable=False)
    if null not in copies:
        os.close(null)


# Each by itself, so that an error of one does not keep the others from their work.
os.register_at_fork(after_in_parent=_count)
os.register_at_fork(after_in_child=_close_single)
os.register_at_fork(after_in_child=_close_of_owners)
