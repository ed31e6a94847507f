"""What a PromQL query asks for, and what there is to be asked for."""

import functools
import json
import re
from pathlib import Path
from typing import NamedTuple

import promql_parser
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
VARIABLES = {"$__rate_interval": "5m", "$group": "orders", "${datasource}": "x"}
# A label that Prometheus adds itself, or that makes a histogram.
EVERYWHERE = frozenset({"namespace", "job", "instance", "le"})


class Query(NamedTuple):
    """A query with where it stands."""

    where: str
    text: str


class Asked(NamedTuple):
    """A metric that a query names, with the labels that it chooses by."""

    metric: str
    labels: frozenset[str]


def rules() -> dict[str, list[dict[str, object]]]:
    """Return all groups of rules by name."""
    read = [yaml.safe_load(path.read_text()) for path in RULES]
    return {group["name"]: group["rules"] for one in read for group in one["groups"]}


def alerts() -> dict[str, dict[str, object]]:
    """Return the alerts by name."""
    return {str(rule["alert"]): rule for group in rules().values() for rule in group if "alert" in rule}


def recorded() -> dict[str, str]:
    """Return the queries of the recording rules by what they record."""
    return {str(rule["record"]): str(rule["expr"]) for group in rules().values() for rule in group if "record" in rule}


def rule_queries() -> list[Query]:
    """Return the queries of all rules."""
    every = [rule for group in rules().values() for rule in group]
    return [Query(str(rule.get("alert") or rule["record"]), str(rule["expr"])) for rule in every]


def dashboard_queries() -> list[Query]:
    """Return the queries of all dashboards: panels, annotations and variables."""
    found = []
    for path in DASHBOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            found += [Query(f"{path.stem}: {panel['title']}", one["expr"]) for one in panel.get("targets", [])]
        for note in board["annotations"]["list"]:
            found.append(Query(f"{path.stem}: {note['name']}", note["expr"]))
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                named = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
                assert named is not None, variable
                found.append(Query(f"{path.stem}: {variable['name']}", f"sum by ({named[2]}) ({named[1]})"))
    return found


def metrics_and_labels(text: str) -> tuple[set[Asked], set[str]]:
    """Return the metrics that a query names, and the labels that it groups or joins by.

    Raises:
        ValueError: when it is no PromQL.
    """
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    assert "$" not in text, text
    metrics: set[Asked] = set()

    def visit(node: promql_parser.Expr) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            assert node.name is not None, text
            metrics.add(Asked(node.name, frozenset(one.name for one in node.matchers.matchers)))

    promql_parser.walk(promql_parser.parse(text), visit)
    groupings = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", text)
    return metrics, {label.strip() for one in groupings for label in one.split(",") if label.strip()}


@functools.cache
def documented() -> dict[str, frozenset[str]]:
    """Return the labels of every metric in docs/metrics.md, which its own test holds to what is served."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(batonpass_\w+)` \| \w+ \|([\w, ]*)\|", page, re.MULTILINE)
    return {name: frozenset(filter(None, (label.strip() for label in labels.split(",")))) for name, labels in rows}


def base(metric: str) -> str:
    """Return a histogram's own name for one of its parts; other names as they are."""
    known = documented()
    stem = re.sub(r"_(bucket|sum|count)$", "", metric)
    return stem if metric not in known and stem in known else metric
