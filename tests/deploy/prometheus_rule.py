"""The PrometheusRule of deploy/kubernetes, as it follows from the rules of deploy/prometheus.

`python -m tests.deploy.prometheus_rule` writes it; a test holds both equal.
"""

from typing import Any

import yaml
from tests.deploy.queries import DEPLOY, RULES

RULE = DEPLOY / "kubernetes" / "components" / "monitoring" / "prometheus-rule.yaml"
HEAD = """# Written from deploy/prometheus/rules by python -m tests.deploy.prometheus_rule; a test holds them equal.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: batonpass
spec:
  groups:
"""


def groups(text: str) -> list[Any]:
    """Return the groups of a file of rules."""
    found: list[Any] = yaml.safe_load(text)["groups"]
    return found


def document() -> str:
    """Return the document, with the rules as they are written there."""
    parts = []
    for path in reversed(RULES):
        lines = path.read_text().split("groups:\n", 1)[1].splitlines()
        parts += [f"  {line}" if line else line for line in lines]
    return HEAD + "\n".join(parts) + "\n"


if __name__ == "__main__":
    RULE.write_text(document())
