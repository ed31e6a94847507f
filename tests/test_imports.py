"""The import contracts of pyproject.toml catch what they are there for: each is shown a planted violation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "api",
    "audit",
    "cli",
    "core",
    "core/arrivals",
    "core/handover",
    "core/state",
    "core/target",
    "dashboard",
    "dry_run",
    "explain",
    "invariants",
    "kafka",
    "placement",
    "postgres",
    "runtime",
    "simulate",
    "worker",
)
MODULES = {
    "api/app": "import batonpass.api.routes",
    "api/routes": "",
    "bootstrap": "import batonpass.api\nimport batonpass.postgres\nimport batonpass.runtime",
    "codec": "import batonpass.core.state.records",
    "core/state/ids": "import dataclasses",
    "core/state/records": "import batonpass.core.state.ids",
    "core/state/evolve": "import batonpass.core.state.records",
    "core/arrivals/answers": "",
    "core/arrivals/reports": "import batonpass.core.arrivals.answers",
    "placement/types": "import dataclasses",
    "core/handover/lag": "import batonpass.core.state.records",
    "core/handover/view": "import batonpass.core.handover.lag",
    "core/decide": "import batonpass.core.state.evolve\nimport batonpass.core.handover.lag",
    "worker/protocol": "import batonpass.codec\nimport batonpass.core.state.ids",
    "worker/testing/__init__": "",
    "worker/testing/coordinator": "import batonpass.core.decide\nimport batonpass.runtime.engine",
    "worker/member": "import asyncio\nimport httpx2\nimport batonpass.worker.protocol",
    "runtime/engine": "import batonpass.core.decide",
    "simulate/copies": "",
    "simulate/kafka/__init__": "import batonpass.simulate.copies",
    "simulate/world": (
        "import batonpass.core.decide\nimport batonpass.simulate.copies\nimport batonpass.worker.protocol"
    ),
}
# Contract, the module that offends, what it imports.
PLANTED = (
    ("Imports point down, and the shells do not know one another", "api/routes", "batonpass.postgres"),
    ("Imports point down, and the shells do not know one another", "runtime/engine", "batonpass.api"),
    ("Imports point down, and the shells do not know one another", "postgres/record_log", "batonpass.kafka"),
    ("Imports point down, and the shells do not know one another", "worker/member", "batonpass.runtime.engine"),
    ("Imports point down, and the shells do not know one another", "worker/testing/coordinator", "batonpass.api"),
    ("Imports point down, and the shells do not know one another", "placement/types", "batonpass.core.state.ids"),
    ("The core reads downward", "core/state/records", "batonpass.core.decide"),
    ("The core reads downward", "core/arrivals/reports", "batonpass.core.decide"),
    ("The values of a group read downward", "core/state/records", "batonpass.core.state.evolve"),
    ("What has come in reads downward", "core/arrivals/answers", "batonpass.core.arrivals.reports"),
    ("The way to the target reads downward", "core/handover/lag", "batonpass.core.handover.view"),
    ("No cycles", "core/handover/lag", "batonpass.core.handover.view"),
    ("No cycles", "simulate/copies", "batonpass.simulate.world"),
    ("No cycles", "worker/protocol", "batonpass.worker.member"),
    ("No cycles", "api/routes", "batonpass.api.app"),
    ("The laws are written without the code that they check", "invariants", "batonpass.core.handover.lag"),
    ("The core is pure", "core/state/ids", "time"),
    ("The core is pure", "core/handover/lag", "msgspec"),
    ("Only placement knows the solver", "core/handover/lag", "ortools"),
    ("The runtime and the codec know no server library", "codec", "pydantic"),
    ("The runtime and the codec know no server library", "runtime/engine", "sqlalchemy"),
    ("The service runs without Spark", "bootstrap", "batonpass.audit"),
    ("The service runs without Spark", "postgres/record_log", "pyspark"),
    ("The audit runs without the service", "audit/job", "batonpass.runtime"),
    ("The audit runs without the service", "audit/job", "fastapi"),
    ("The audit's ledger shares nothing with the code that it checks", "audit/ledger", "batonpass.core.state.evolve"),
    ("The audit's ledger shares nothing with the code that it checks", "audit/facts", "batonpass.invariants"),
    ("The dashboard knows the public API only", "dashboard/pages", "batonpass.core"),
    (
        "The worker imports nothing of the service but the ids and the codec",
        "worker/member",
        "batonpass.core.state.records",
    ),
    ("The worker's protocol does no I/O and reads no clock", "worker/protocol", "asyncio"),
    ("The simulator knows the core, the codec and the worker's protocol", "simulate/world", "batonpass.worker.member"),
    ("The simulator knows the core, the codec and the worker's protocol", "simulate/world", "httpx2"),
    ("The simulated world knows no model of Kafka", "simulate/world", "batonpass.simulate.kafka"),
)


def lint(tree: Path, *planted: tuple[str, str]) -> str:
    """Write a small batonpass with some more imports planted in it, and return what the linter says of it."""
    sources = {name: f"{imports}\n" for name, imports in MODULES.items()} | {
        f"{name}/__init__": "" for name in PACKAGES
    }
    for module, imported in planted:
        sources[module] = f"{sources.get(module, '')}import {imported}\n"
    sources["__init__"] = sources["__main__"] = ""
    for name, source in sources.items():
        path = tree / "batonpass" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    linter = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(linter, cwd=tree, capture_output=True, text=True, check=False).stdout


def broken_in(report: str) -> dict[str, str]:
    """Return each broken contract's part of a report."""
    names = {contract for contract, _, _ in PLANTED}
    _, _, details = report.partition("Broken contracts\n")
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in details.splitlines():
        if line in names:
            lines = []
            found[line] = ""
        lines.append(line)
        if found:
            found[list(found)[-1]] = "\n".join(lines)
    return found


def test_a_tree_that_obeys_is_let_through(tmp_path: Path) -> None:
    """So the contracts of the other tests are broken by what is planted."""
    assert "0 broken." in lint(tmp_path)


@pytest.mark.parametrize("contract", sorted({contract for contract, _, _ in PLANTED}))
def test_each_contract_catches_its_violations(contract: str, tmp_path: Path) -> None:
    planted = [(module, imported) for name, module, imported in PLANTED if name == contract]
    report = broken_in(lint(tmp_path, *planted))
    assert contract in report
    for module, imported in planted:
        # The contract on cycles leaves out the package that they are in.
        own = re.compile(r"^(batonpass\.)?(api|core[./](arrivals|handover|state)|core|simulate|worker)[./]")
        assert own.sub("", module).replace("/", ".") in report[contract]
        assert own.sub("", imported).removeprefix("batonpass.") in report[contract]


def test_every_contract_is_shown_a_violation() -> None:
    configured = [
        line.removeprefix('name = "').rstrip('"')
        for line in (ROOT / "pyproject.toml").read_text().partition("[tool.importlinter]")[2].splitlines()
        if line.startswith("name = ")
    ]
    assert sorted(configured) == sorted({contract for contract, _, _ in PLANTED})
