"""docs/worker-reference.md, as it follows from the docstrings; run as a module, it writes it.

python -m tests.worker_reference
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from batonpass.worker import kafka
from batonpass.worker.testing import Fleet

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "worker-reference.md"

CHAPTERS: dict[str, tuple[Any, ...]] = {
    "The job": (kafka.App, kafka.AppProducer, kafka.Topic, kafka.Table),
    "What its functions get": (kafka.Record, kafka.Context, kafka.State, kafka.KeyValueStore, kafka.Timer),
    "Serdes": (kafka.Serde, kafka.optional, kafka.json_of, kafka.msgpack_of),
    "Options": (kafka.ActiveOptions, kafka.KafkaConnection),
    "Tests without a broker": (kafka.AppTest, Fleet),
    "What an App is made of": (
        kafka.KafkaRuntime,
        kafka.Subtopology,
        kafka.StoreInTransaction,
        kafka.Store,
        kafka.RocksStore,
        kafka.RocksMemory,
        kafka.MemoryStore,
        kafka.in_memory,
    ),
    "Errors": (
        kafka.NotDeclared,
        kafka.MissingPartition,
        kafka.ChangelogRefused,
        kafka.ChangelogShort,
        kafka.RecordRefused,
        kafka.RecordTooLarge,
        kafka.OutputRefused,
        kafka.OffsetGone,
        kafka.StoreFailed,
        kafka.StoreClosed,
    ),
}

LINE_MAX = 110

BEGIN = """# Reference of workers on Kafka

[Your first worker on Kafka](first-worker.md) is where to begin. This page has what the docstrings say, which an editor shows too; `python -m tests.worker_reference` writes it. All names are of `batonpass.worker.kafka`, but for `Fleet`, which is of `batonpass.worker.testing`. Times are milliseconds since 1970.
"""


def text() -> str:
    """Return the page as the docstrings of this version say it."""
    return "\n".join(_page())


def _page() -> Iterator[str]:
    yield BEGIN
    for chapter, things in CHAPTERS.items():
        yield f"## {chapter}\n"
        for thing in things:
            yield f"### {thing.__name__}\n"
            if not (inspect.isclass(thing) and (issubclass(thing, Exception) or Protocol in thing.__bases__)):
                yield _signature(thing.__name__, thing)
            yield _prose(thing)
            if inspect.isclass(thing):
                yield from _members(thing)


def _members(owner: type) -> Iterator[str]:
    for name, thing in vars(owner).items():
        function = thing.fget if isinstance(thing, property) else getattr(thing, "__func__", thing)
        if name.startswith("_") or not inspect.isfunction(function) or not function.__doc__:
            continue
        if isinstance(thing, property):
            yield f"**`{name}`**: {_prose(function)}"
        else:
            yield _signature(("await " if _is_awaited(function) else "") + name, function)
            yield _prose(function)


def _is_awaited(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or "Coroutine" in str(function.__annotations__.get("return"))


def _signature(name: str, thing: Any) -> str:
    """Return a call with its arguments, one a line where they are many; those behind a * are named in the call."""
    shown: list[str] = []
    kinds = _as_written(thing)
    for one in inspect.signature(thing).parameters.values():
        if one.name in ("self", "cls") or one.name.startswith("_"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        shown.append(f"{stars}{one.name}: {kinds[one.name]}{default}")
    call = f"{name}({', '.join(shown)})"
    if len(call) > LINE_MAX:
        call = f"{name}(\n" + "".join(f"    {argument},\n" for argument in shown) + ")"
    return f"```python\n{call}\n```\n"


def _as_written(thing: Any) -> dict[str, str]:
    """Return the annotation of each argument or field as the source has it, not as it was evaluated."""
    of = thing.__init__ if inspect.isclass(thing) and "__init__" in inspect.getsource(thing) else thing
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(of)))):
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation:
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            found[name] = ast.unparse(node.annotation).strip("'")
    return found


def _default(value: object) -> str:
    if inspect.isclass(value):
        return value.__name__
    return repr(value) if isinstance(value, (str, int, float, bool, tuple, type(None))) else "..."


def _prose(thing: Any) -> str:
    """Return a docstring as Markdown: paragraphs in one line, examples and errors as they are set."""
    said = []
    for paragraph in inspect.cleandoc(thing.__doc__ or "").replace("``", "`").split("\n\n"):
        if paragraph.startswith("Raises:"):
            errors = re.sub(r"\n {8,}", " ", paragraph).splitlines()[1:]
            said.append("\n".join(re.sub(r"^ *(\w+): ", r"- raises `\1` ", error) for error in errors))
        elif paragraph.startswith("    "):
            said.append(f"```python\n{inspect.cleandoc(paragraph)}\n```")
        else:
            said.append(" ".join(paragraph.split("\n")))
    return "\n\n".join(said) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text())
