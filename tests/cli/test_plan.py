"""``batonpass plan --snapshot``: the dry run as people and scripts call it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from batonpass.cli import app

ROOT = Path(__file__).resolve().parents[2]
ONE = {"tasks": [{"id": "0_0"}], "members": [{"id": "m1", "tasks": {"0_0": {"role": "active"}}}]}


def run(*arguments: str, stdin: str = "") -> Result:
    """Run ``batonpass plan`` in this process; the example of the page runs as a process of its own."""
    return CliRunner().invoke(app, ["plan", *arguments], input=stdin)


def test_the_answer_has_exactly_the_fields_of_the_protocol() -> None:
    found = run("--snapshot", "-", "--json", stdin=json.dumps(ONE))
    assert found.exit_code == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer.pop("decide_ms") > 0
    assert answer == {
        "target": {"m1": {"active": ["0_0"], "standby": []}},
        "assignment": {"m1": {"active": ["0_0"], "standby": [], "warmup": []}},
        "moves": 0,
        "lower_bound": 0,
        "at_rest": True,
        "placement_failed": "",
        "probing_needed": False,
        "held_back": [],
        "reasons": [{"task": "0_0", "code": "stays", "detail": "runs on m1 and stays there"}],
    }


def test_json_lines_get_an_answer_a_line(tmp_path: Path) -> None:
    """Protocol 13.1."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text(f"{json.dumps(ONE)}\n\n{json.dumps({**ONE, 'members': []})}\n")
    found = run("--snapshot", str(lines), "--json")
    assert [len(json.loads(line)["assignment"]) for line in found.stdout.splitlines()] == [1, 0]
    lines.write_text("\ufeff\n" + json.dumps(ONE, indent=2), encoding="utf-8")
    assert len(run("--snapshot", str(lines), "--json").stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tasks": [{"id": "0_0", "weight": 0}]}', "line 1, tasks[0].weight: "),
        ('{"tasks": [{"id": "zero"}]}', "line 1, tasks[0].id: not a task id"),
        ('{"task": []}', "line 1, task: is not a known field"),
        ('{"config": {"max_warmups": 1}}', "line 1, config.max_warmups: no such setting"),
        ('{}\n{"members": [{"id": "m1", "tasks": {"0_0": {"role": "active"}}}]}', "line 2, members[0].tasks.0_0: "),
        (
            '{"tasks": [{"id": "0_0"}], "members": [{"id": "m1", "tasks": {"0_0": {"role": "standby", "lag": null}}}]}',
            "lag: ",
        ),
        ('{"paused": "perhaps"}', "line 1, paused: "),
        (
            '{"tasks": [{"id": "0_0"}, {"id": "0_00"}]}',
            "line 1, tasks[1].id: '0_00' is not a task id; without the zeros",
        ),
        (
            '{"tasks": [{"id": "0_0", "revoking": "b"}], "members": [{"id": "a"}, {"id": "b"}]}',
            "line 1, tasks[0].revoking: b does not have 0_0 as active",
        ),
        (
            '{"tasks": [{"id": "0_0"}], "target": {"a": {"active": ["0_0"]}, "b": {"active": ["0_0"]}}}',
            "line 1, target.b.active: task 0_0 is active on a as well",
        ),
        (
            '{"tasks": [{"id": "0_0"}], "members": [{"id": "a"}], "target": {"a": {"active": ["0_0"], "standby": ["0_0"]}}}',
            "line 1, target.a: task 0_0 is listed 2 times",
        ),
        ('{"tasks": [', "line 1, body: JSON is malformed"),
        ("[]", "line 1, body: "),
        ("[" * 200_000, "line 1, body: JSON is malformed"),
        ("", "line 1, body: there is no snapshot"),
    ],
)
def test_a_bad_file_is_refused_by_line_path_and_reason(text: str, message: str) -> None:
    """Protocol 13.7."""
    found = run("--snapshot", "-", "--json", stdin=text)
    assert found.exit_code == 2
    assert message in found.stderr


def test_a_file_that_is_not_there_is_refused() -> None:
    found = run("--snapshot", "nowhere.json")
    assert (found.exit_code, "nowhere.json: No such file" in found.stderr) == (2, True)


def test_people_get_a_table() -> None:
    busy = {"id": "m1", "tasks": {f"0_{n}": {"role": "active"} for n in range(6)}}
    snapshot = {"tasks": [{"id": f"0_{n}"} for n in range(6)], "members": [busy, {"id": "m2"}]}
    found = run("--snapshot", "-", stdin=json.dumps(snapshot))
    assert found.exit_code == 0, found.stderr
    assert "3 moves (lower bound 3), more steps follow" in found.stdout
    assert "waits to go to m2: warmup-budget" in found.stdout


def test_the_page_about_plans_shows_what_happens(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "plan.md").read_text()
    script = re.search(r"```bash\n(.*?)```", page, re.DOTALL)
    assert script is not None
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    text = script[1].replace("--snapshot group.json", "--snapshot group.json --json")
    found = subprocess.run(
        ["bash", "-euc", text], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    m2 = json.loads(found.stdout)["assignment"]["m2"]
    assert m2["active"] == ["0_1"]
    assert len(m2["warmup"]) == 1
