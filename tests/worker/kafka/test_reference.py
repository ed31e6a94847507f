"""The reference says what the docstrings say, and has whatever a worker's own code may import."""

import inspect

from tests import worker_reference

from batonpass.worker import kafka

ELSEWHERE = {"StoreClosed", "OpenStore", "Process", "ReadableStore"}
"""In other entries, or told by the names of their values alone."""


def test_the_page_is_what_the_docstrings_say() -> None:
    assert worker_reference.DOCUMENT.read_text() == worker_reference.text(), "run python -m tests.worker_reference"


def test_every_class_and_function_is_in_it() -> None:
    named = {thing.__name__ for things in worker_reference.CHAPTERS.values() for thing in things}
    public = {
        name for name in kafka.__all__ if inspect.isclass(thing := getattr(kafka, name)) or inspect.isfunction(thing)
    }
    assert public - named - ELSEWHERE == set()
