"""Sockets that a forked child must not keep open: a coordinator takes the end of a connection for a member's death.

A child that is forked, as by `multiprocessing` or a `ProcessPoolExecutor` (whose default on Linux is fork before Python
3.14), has a copy of every descriptor. Its copy of the long-poll's socket would keep that connection open after its
parent was killed. So each child begins by exchanging such copies for the null device. Their numbers stay taken, because
objects that were copied with them may close them once more. A program that is started anew (`subprocess`, ``spawn``,
``forkserver``) has no copies in the first place (PEP 446).
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar
from weakref import WeakKeyDictionary

Owner = TypeVar("Owner")

_owners: WeakKeyDictionary[object, Callable[..., Iterable[int]]] = WeakKeyDictionary()
_forks = 0


def forks() -> int:
    return _forks


def close_in_children(owner: Owner, descriptors: Callable[[Owner], Iterable[int]]) -> None:
    """Have all sockets closed that an owner has when a child is forked. The owner is not kept alive by this.

    ``descriptors`` is called in the child, and has to return at once; a socket that is closed has the number -1.
    An owner that must do nothing more in the child can see to that there, too.
    """
    _owners[owner] = descriptors


def _count() -> None:
    global _forks  # noqa: PLW0603 - a process has one count
    _forks += 1


def _close_all() -> None:
    copies: set[int] = set()
    for owner, descriptors in list(_owners.items()):
        # An error of one does not keep the others open.
        with suppress(Exception):
            copies.update(descriptors(owner))
    _owners.clear()
    _close({descriptor for descriptor in copies if descriptor >= 0})


def _close(copies: set[int]) -> None:
    """Close them, and let their numbers stand for the null device."""
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


os.register_at_fork(after_in_parent=_count, after_in_child=_close_all)
