"""The rules are sound, every alert is tested both ways and has a runbook, and a real Prometheus evaluates them."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from tests.deploy.queries import (
    DEPLOY,
    EVERYWHERE,
    ROOT,
    RULES,
    Query,
    alerts,
    base,
    dashboard_queries,
    documented,
    metrics_and_labels,
    recorded,
    rule_queries,
)
from tests.e2e.running import Up
from tests.programs import program
from tests.waiting import wait_until

from batonpass.sockets import free_port

TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"
OF_A_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}
"""What prometheus-client shows of any process."""


def promtool(*arguments: str | Path) -> str:
    """Run promtool and return what it says."""
    done = subprocess.run([program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("promtool")
def test_the_rules_and_the_configuration_are_sound() -> None:
    output = promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")
    assert output.count(" rules found") == len(RULES)


@pytest.mark.needs("promtool")
def test_the_alerts_fire_when_they_should() -> None:
    assert promtool("test", "rules", *TESTS).count("SUCCESS") == len(TESTS)


def test_every_alert_is_tried_both_ways() -> None:
    seen: dict[str, set[bool]] = {}
    for path in TESTS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            (one,) = case["promql_expr_test"]
            named = re.search(r'alertname="(\w+)", alertstate="firing"', one["expr"])
            assert named is not None
            assert case["name"].startswith(named[1].removeprefix("Batonpass") + ":")
            seen.setdefault(named[1], set()).add(bool(one["exp_samples"]))
    assert seen == {name: {True, False} for name in alerts()}


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for name, alert in alerts().items():
        labels, notes = alert["labels"], alert["annotations"]
        assert isinstance(labels, dict)
        assert isinstance(notes, dict)
        assert labels["severity"] in {"critical", "warning"}
        assert notes["summary"]
        assert notes["description"]
        kebab = re.sub(r"(?<!^)(?=[A-Z])", "-", name.removeprefix("Batonpass")).lower()
        assert notes["runbook"] == f"docs/runbooks/{kebab}.md"
    named = {str(alert["annotations"]["runbook"]) for alert in alerts().values()}  # type: ignore[index]
    assert {str(path.relative_to(ROOT)) for path in RUNBOOKS.glob("*.md")} == named | {
        "docs/runbooks/README.md",
        "docs/runbooks/member-silent.md",  # a group's health names it
    }


@pytest.mark.parametrize("query", [*rule_queries(), *dashboard_queries()], ids=lambda query: query.where)
def test_every_query_asks_for_what_is_there(query: Query) -> None:
    known, made = documented(), recorded()
    metrics, grouping = metrics_and_labels(query.text)
    has: set[str] = set(EVERYWHERE)
    for metric, labels in metrics:
        if metric in made:
            has |= metrics_and_labels(made[metric])[1]
        elif metric.startswith("batonpass"):
            assert base(metric) in known
            has |= known[base(metric)]
        else:
            assert metric in {"up", *OF_A_PROCESS}
        assert labels <= has, metric
    assert grouping <= has


def test_every_recording_rule_is_used() -> None:
    used = {
        one.metric for query in [*rule_queries(), *dashboard_queries()] for one in metrics_and_labels(query.text)[0]
    }
    assert set(recorded()) - used == set()


def test_what_queries_ask_for_is_served(fleet: Up) -> None:
    answer = httpx.get(f"{fleet.url}/metrics")
    served = set(re.findall(r"^# TYPE (\w+) ", answer.text, re.MULTILINE))
    asked_for = {
        base(one.metric)
        for query in [*rule_queries(), *dashboard_queries()]
        for one in metrics_and_labels(query.text)[0]
    }
    assert asked_for - set(recorded()) - {"up"} - served == set()


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[httpx.Client]:
    """Run Prometheus on our rules, every second, against one coordinator."""
    for path in RULES:
        (folder / path.name).write_text(path.read_text().replace("interval: 30s", "interval: 1s"))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [path.name for path in RULES],
        "scrape_configs": [{"job_name": "batonpass", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), "--config.file=prometheus.yml", f"--web.listen-address={address}"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen([*command, "--storage.tsdb.path=data"], cwd=folder, stdout=log, stderr=log) as process,
        httpx.Client(base_url=f"http://{address}/api/v1") as client,
    ):
        try:
            yield client
        finally:
            process.terminate()


def result(client: httpx.Client, query: str) -> list[dict[str, Any]]:
    """Return what a query comes to, nothing while Prometheus is not up."""
    try:
        answer = client.get("/query", params={"query": query})
    except httpx.TransportError:
        return []
    found: list[dict[str, Any]] = answer.json()["data"]["result"] if answer.status_code == 200 else []
    return found


@pytest.mark.needs("promtool")
def test_a_real_prometheus_scrapes_and_evaluates(fleet: Up, tmp_path: Path) -> None:
    target = fleet.url.removeprefix("http://")
    operator = httpx.Client(base_url=fleet.url, headers={"authorization": f"Bearer {fleet.token}"})
    with operator, prometheus(tmp_path, target) as client:
        found = wait_until(lambda: result(client, 'group:batonpass_members:sum{group="demo"} == 2'))
        assert found[0]["metric"]["job"] == "batonpass"
        assert operator.post("/v1/groups/demo/pause", json={"reason": "a test"}).status_code == 204
        wait_until(
            lambda: result(client, 'ALERTS{alertname="BatonpassPausedTooLong", alertstate="pending", group="demo"}')
        )
        operator.post("/v1/groups/demo/resume")
        groups = client.get("/rules").json()["data"]["groups"]
        evaluated = {rule["name"]: (rule["health"], rule.get("lastError")) for one in groups for rule in one["rules"]}
        assert set(evaluated) == {*alerts(), *recorded()}
        assert {name: health for name, health in evaluated.items() if health != ("ok", None)} == {}
