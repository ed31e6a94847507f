"""What docs/glossary.md and docs/packages.md name is there: files, folders, and the names of code in them."""

import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "service" / "batonpass"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PACKAGES = (ROOT / "docs" / "packages.md").read_text()
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# A name of code beside the file that has it: `X` in `a.py`; `a.py`, `X`; `a.py` (`X`, or `Y`).
BESIDE = (
    re.compile(r"(?P<names>`\w+`) in `(?P<file>[\w/]+\.py)`"),
    re.compile(r"`(?P<file>[\w/]+\.py)`, (?P<names>`\w+`)"),
    re.compile(r"`(?P<file>[\w/]+\.py)` \((?P<names>[^)]*)\)"),
)


def without_other_names(page: str) -> str:
    """Return a page without the third columns of its tables, where Kafka's and others' names for a thing stand."""
    return re.sub(r"^(\|[^|]*\|[^|]*\|)[^|\n]*\|$", r"\1", page, flags=re.MULTILINE)


def sections(page: str) -> list[tuple[str, tuple[Path, ...]]]:
    """Return each section of a page with the folders in which its paths may begin."""
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)
    headed = zip(["", *parts[1::2]], parts[::2], strict=True)
    return [
        (text, (ROOT, SOURCES, *(SOURCES / word for word in heading.split() if (SOURCES / word).is_dir())))
        for heading, text in headed
    ]


def missing(page: str) -> list[str]:
    """Return what a page names in backticks, with a slash or a dot in it, and is nowhere."""
    return [
        name
        for text, folders in sections(FENCED.sub("", page))
        for name in re.findall(r"`([\w.-]*[./][\w./-]*)`", text)
        if not any((folder / name).exists() for folder in folders) and not re.search(rf"\b{re.escape(name)}\b", code())
    ]


def unknown(page: str) -> list[str]:
    """Return the names of code that a page places in a file which does not have them."""
    return [
        f"{name} in {found['file']}"
        for text, folders in sections(FENCED.sub("", page))
        for pattern in BESIDE
        for found in pattern.finditer(text)
        for name in re.findall(r"`(\w+)`", found["names"])
        if not any(has(folder / found["file"], name) for folder in folders)
    ]


def has(file: Path, name: str) -> bool:
    """Whether a file defines a name, or calls it; that a sentence in it has the word is not enough."""
    used = re.compile(rf"\b(class|def) {name}\b|^\s*{name}\s*[:=]|\.{name}\(", re.MULTILINE)
    return file.is_file() and used.search(file.read_text()) is not None


@functools.cache
def code() -> str:
    return "\n".join(path.read_text() for path in sorted(SOURCES.rglob("*.py")))


@pytest.mark.parametrize("page", [without_other_names(GLOSSARY), PACKAGES], ids=["glossary", "packages"])
def test_what_a_page_names_is_there(page: str) -> None:
    assert missing(page) == []
    assert unknown(page) == []


def test_every_class_of_the_glossary_is_there() -> None:
    named = set(re.findall(r"`((?:[A-Z][a-z]+)+)`", without_other_names(GLOSSARY)))
    assert {name for name in named if not re.search(rf"\bclass {name}\b", code())} == set()


def test_every_package_and_every_module_beside_them_has_its_words() -> None:
    sections_of = {word for heading in re.findall(r"^## (.*)$", PACKAGES, re.MULTILINE) for word in heading.split()}
    packages = {path.parent.name for path in SOURCES.glob("*/__init__.py")}
    assert packages - sections_of == set()
    modules = {path.name for path in SOURCES.glob("*.py")} - {"__init__.py"}
    beside = PACKAGES.partition("## The modules beside them")[2].partition("\n## ")[0]
    assert {name for name in modules if f"`{name}`" not in beside} == set()


def test_the_pictures_show_files_that_are_there() -> None:
    for text, folders in sections(PACKAGES):
        for picture in FENCED.findall(text):
            for name in re.findall(r"[\w/]+(?:\.py|/)", picture):
                inner = [path.as_posix() + "/" * path.is_dir() for folder in folders[1:] for path in folder.rglob("*")]
                assert any(path.endswith(f"/{name}") for path in inner), name


@pytest.mark.parametrize(
    ("page", "gone", "strange"),
    [
        ("`core/decide.py` and `core/`", [], []),
        ("`core/decided.py`, `nowhere/` and `time.hours`", ["core/decided.py", "nowhere/", "time.hours"], []),
        ("`Nothing` in `core/decide.py`", [], ["Nothing in core/decide.py"]),
        ("`core/decide.py` (`Decision`, or `decided`)", [], ["decided in core/decide.py"]),
        ("## core\n\n`decide.py`, `Decision`", [], []),
        ("`decide.py`, `Decision`", ["decide.py"], ["Decision in decide.py"]),
        ("| a word | a `core/state/model.py` | `max.warmup.replicas` |", [], []),
    ],
)
def test_what_is_not_there_is_found(page: str, gone: list[str], strange: list[str]) -> None:
    shown = without_other_names(page)
    assert (missing(shown), unknown(shown)) == (gone, strange)
