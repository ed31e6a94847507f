"""The manifests are what Kubernetes takes, and keep what they promise: no root, no secrets, time to hand over."""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.deploy import prometheus_rule
from tests.deploy.manifests import (
    KUBERNETES,
    Document,
    documents,
    fault,
    files,
    kustomization,
    named,
    pod,
    rendered,
    resolved,
    roots,
)
from tests.deploy.queries import ROOT, RULES, base, documented, metrics_and_labels
from tests.deploy.test_packaging import SETTINGS, stages

from batonpass.cli import app
from batonpass.cli.spans import span_ms
from batonpass.settings import Settings
from batonpass.worker.options import Options

PRODUCTION = KUBERNETES / "overlays" / "production"
ROOTS = roots()
EVERY = [
    (path, one)
    for path in sorted(KUBERNETES.rglob("*.yaml"))
    if path.name != "kustomization.yaml"
    for one in documents(path)
]
PODS = [(path, one, found) for path, one in EVERY if (found := pod(one)) is not None]
SECONDS = 1_000


def short(folder: Path) -> str:
    """Return a folder as it is called."""
    return str(folder.relative_to(KUBERNETES))


def test_no_file_is_left_out() -> None:
    brought = {path for folder in ROOTS for path in files(folder)}
    brought |= set(files(KUBERNETES / "components" / "spark-operator"))
    assert {path for path, _ in EVERY} == brought
    assert {short(one) for one in ROOTS} >= {"base", "overlays/production", "overlays/trial", "examples/statefulset"}


@pytest.mark.parametrize("folder", [*ROOTS, KUBERNETES / "components" / "spark-operator"], ids=short)
def test_every_document_is_valid(folder: Path) -> None:
    """Before patches and as it is applied."""
    applied = rendered(folder) if folder in ROOTS else []
    for one in [*resolved(folder), *applied]:
        assert fault(one) is None, f"{one['kind']} {one['metadata']['name']}: {fault(one)}"


def test_the_driver_of_the_audit_writes_alone_and_executors_have_room_for_their_workers() -> None:
    """As docs/audit-run.md says: no shared folder, and beside the heap 400 MB for each core."""
    folder = KUBERNETES / "components" / "spark-operator"
    application = named(resolved(folder), "ScheduledSparkApplication", "batonpass-audit")["spec"]["template"]
    driver, executor = application["driver"], application["executor"]
    audit = pod(named(resolved(KUBERNETES / "base"), "CronJob", "batonpass-audit"))
    assert audit is not None
    for part in (driver, executor):
        assert part["podSecurityContext"] == audit["securityContext"]
        context = audit["containers"][0]["securityContext"]
        assert part["securityContext"].items() <= context.items()
        assert context.keys() - part["securityContext"].keys() == {"readOnlyRootFilesystem"}
    assert [one["name"] for one in driver["volumeMounts"]] == ["audits"]
    assert "volumeMounts" not in executor
    assert [one["target"]["kind"] for one in kustomization(folder)["patches"]] == ["CronJob"]
    said = (ROOT / "docs" / "audit-run.md").read_text(encoding="utf-8")
    found = re.search(
        r"`spark.executor.memory=(\w+)`, and `spark.executor.memoryOverhead` (\d+) MB for each core", said
    )
    assert found is not None
    assert executor["memory"] == found[1]
    assert executor["memoryOverhead"] == f"{int(found[2]) * executor['cores']}m"


def test_a_fault_is_found() -> None:
    found = resolved(PRODUCTION)
    deployment = copy.deepcopy(named(found, "Deployment", "batonpass"))
    deployment["spec"]["replica"] = 2
    monitor = copy.deepcopy(named(found, "ServiceMonitor", "batonpass"))
    monitor["spec"]["endpoints"][0]["every"] = "15s"
    budget = copy.deepcopy(named(found, "PodDisruptionBudget", "batonpass"))
    budget["spec"]["selector"]["matchLabels"]["x"] = 1
    for one in (deployment, monitor, budget, budget | {"kind": "Nonsense"}):
        assert fault(one) is not None


def test_the_rules_are_those_of_prometheus() -> None:
    assert prometheus_rule.RULE.read_text() == prometheus_rule.document()
    spec = yaml.safe_load(prometheus_rule.RULE.read_text())["spec"]
    assert sorted(spec["groups"], key=str) == sorted(
        [one for path in RULES for one in prometheus_rule.groups(path.read_text())], key=str
    )


@pytest.mark.parametrize(("path", "document", "spec"), PODS, ids=lambda value: getattr(value, "stem", ""))
def test_pods_are_confined(path: Path, document: Document, spec: Document) -> None:
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("folder", ROOTS, ids=short)
def test_what_runs_before_everything_else_needs_nothing_of_it(folder: Path) -> None:
    """Argo CD and Helm make the rest only once the hook has succeeded; a job without its account gets no pod."""
    for one in rendered(folder):
        if "argocd.argoproj.io/hook" in one["metadata"].get("annotations", {}):
            spec = pod(one)
            assert spec is not None
            assert "serviceAccountName" not in spec
            assert "configMap" not in str(spec)


@pytest.mark.parametrize(("path", "document", "spec"), PODS, ids=lambda value: getattr(value, "stem", ""))
def test_scratch_space_has_a_size(path: Path, document: Document, spec: Document) -> None:
    """A pod that writes too much is evicted by itself, before the node's disk is full."""
    for volume in spec.get("volumes", []):
        if "emptyDir" in volume:
            assert "sizeLimit" in volume["emptyDir"], volume["name"]


def test_coordinators_that_serve_nobody_keep_no_node() -> None:
    """While the database is away none is ready; as the budget has it by default, no node could be emptied then."""
    budget = named(resolved(PRODUCTION), "PodDisruptionBudget", "batonpass")
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_secrets_are_by_reference() -> None:
    assert [one for _, one in EVERY if one["kind"] == "Secret"] == []
    for _, _, spec in PODS:
        for container in spec["containers"]:
            for variable in container.get("env", []):
                if re.search(r"TOKEN|PASSWORD|DATABASE_URL", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"]
                if variable["name"].startswith("BATONPASS_"):
                    assert variable["name"] in SETTINGS


def test_an_audit_whose_node_is_drained_is_tried_again_however_often() -> None:
    """The CronJob makes up no missed day."""
    job = named(resolved(KUBERNETES / "base"), "CronJob", "batonpass-audit")["spec"]["jobTemplate"]["spec"]
    first = job["podFailurePolicy"]["rules"][0]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


def test_settings_of_the_overlay_are_settings() -> None:
    for folder in ROOTS:
        for one in kustomization(folder).get("configMapGenerator", []):
            for literal in one.get("literals", []):
                assert literal.partition("=")[0] in SETTINGS


def test_two_coordinators_that_do_not_go_at_once() -> None:
    """They are on different nodes; a disruption leaves one, and a new one comes before an old one goes."""
    found = resolved(KUBERNETES / "base")
    deployment = named(found, "Deployment", "batonpass")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    budget = named(found, "PodDisruptionBudget", "batonpass")["spec"]
    assert budget["minAvailable"] == 1
    selectors = [budget["selector"]["matchLabels"], named(found, "Service", "batonpass")["spec"]["selector"]]
    spread = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors += [one["labelSelector"]["matchLabels"] for one in spread]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    monitor = named(resolved(PRODUCTION), "ServiceMonitor", "batonpass")["spec"]["selector"]["matchLabels"]
    for selector in [*selectors, monitor]:
        assert selector.items() <= labels.items()


def test_a_coordinator_has_the_time_to_end() -> None:
    """Its grace period holds the delay, and twice what its shutdown may take."""
    spec = pod(named(resolved(KUBERNETES / "base"), "Deployment", "batonpass"))
    assert spec is not None
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    shutdown_s = Settings.model_fields["shutdown_s"].default
    needed_s = int(env["BATONPASS_SHUTDOWN_DELAY_S"]) + 2 * shutdown_s
    assert spec["terminationGracePeriodSeconds"] > needed_s


def test_no_url_is_made_of_an_address_whose_family_is_unknown() -> None:
    """One of IPv6 stands in brackets in a URL, and one of IPv4 does not: programs know that, and manifests do not."""
    for path in KUBERNETES.rglob("*.yaml"):
        assert "://$(" not in path.read_text(), path


def test_every_image_is_built_here() -> None:
    images = {one["image"] for path, _, spec in PODS if "examples" not in path.parts for one in spec["containers"]}
    assert {one.removeprefix("batonpass-").replace("batonpass", "service") for one in images} <= set(stages())
    overlay = kustomization(PRODUCTION)
    assert {one["name"] for one in overlay["images"]} == images


def test_network_policies_choose_pods_that_there_are() -> None:
    found = resolved(KUBERNETES / "base")
    components = {
        one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        for one in found
        if one["kind"] in {"Deployment", "Job"}
    } | {"audit"}
    chosen: set[str] = set()
    for policy in [one for one in found if one["kind"] == "NetworkPolicy"]:
        selector = policy["spec"]["podSelector"]
        chosen |= {selector["matchLabels"].get("app.kubernetes.io/component", "")} - {""}
        chosen |= {value for one in selector.get("matchExpressions", []) for value in one["values"]}
        ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        assert 53 in ports
    assert chosen == components


def understood(command: list[str]) -> dict[str, Any]:
    """Return the parameters of one of our commands, as the program understands them."""
    parent = typer.main.get_command(app)
    assert isinstance(parent, typer.core.TyperGroup)
    context = typer.Context(parent)
    _, found, arguments = parent.resolve_command(context, command[1:])
    assert found is not None
    return dict(found.make_context(command[1], [*arguments], parent=context).params)


@pytest.mark.parametrize("example", ["statefulset", "deployment"])
def test_workers_have_the_time_to_hand_over(example: str) -> None:
    """The grace period holds the wait for the drain and the program's own end; the drain's deadline lies before."""
    found = resolved(KUBERNETES / "examples" / example)
    (worker,) = [one for one in found if one["kind"] in {"StatefulSet", "Deployment"}]
    spec = pod(worker)
    assert spec is not None
    hook = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    mode, group, *options = hook[2:]
    assert mode == {"statefulset": "auto", "deployment": "drain"}[example]
    arguments = understood(["batonpass", "drain", group, "pod-0", "--wait", *options])
    grace_ms = spec["terminationGracePeriodSeconds"] * SECONDS
    wait_ms = span_ms(arguments["longest"])
    if arguments["deadline"] is None:
        assert grace_ms >= wait_ms + Options().exit_timeout_ms
    else:
        assert span_ms(arguments["deadline"]) < wait_ms < grace_ms < 120 * SECONDS
    probe = spec["containers"][0]["readinessProbe"]["exec"]["command"][2]
    assert understood(shlex.split(probe.replace('"$HOSTNAME"', "pod-0")))["member"] == "pod-0"


def test_workers_surge_and_are_disrupted_one_by_one() -> None:
    """Of a deployment new pods come first and stay a while; of a set one pod at a time goes."""
    clicks = resolved(KUBERNETES / "examples" / "deployment")
    deployment = named(clicks, "Deployment", "clicks")["spec"]
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["minReadySeconds"] > 0
    orders = resolved(KUBERNETES / "examples" / "statefulset")
    assert named(orders, "PodDisruptionBudget", "orders")["spec"]["maxUnavailable"] == 1
    assert named(clicks, "PodDisruptionBudget", "clicks")["spec"]["maxUnavailable"] == "10%"


def test_autoscaling_asks_for_a_metric_that_there_is() -> None:
    known = documented()
    keda = named(resolved(KUBERNETES / "examples" / "autoscaling-keda"), "ScaledObject", "clicks")["spec"]
    hpa = named(resolved(KUBERNETES / "examples" / "autoscaling-hpa"), "HorizontalPodAutoscaler", "clicks")
    query = keda["triggers"][0]["metadata"]["query"]
    metrics, _ = metrics_and_labels(query)
    assert {base(one.metric) for one in metrics} == {"batonpass_group_members_needed"}
    external = hpa["spec"]["metrics"][0]["external"]["metric"]
    asked = external["selector"]["matchLabels"]
    # A trial in another namespace may have a group of the same name.
    assert asked == {"group": "clicks", "namespace": kustomization(PRODUCTION)["namespace"]}
    assert all(f'{name}="{value}"' in query for name, value in asked.items())
    assert set(asked) - {"namespace"} <= known[external["name"]]
    assert external["name"] == "batonpass_group_members_needed"
    # Where no load is measured, the number of members stays what it is: nothing is scaled, and to no fixed number.
    assert keda["triggers"][0]["metadata"]["ignoreNullValues"] == "false"
    assert "fallback" not in keda
    # Each member is to be as full as the other example has it, and never full.
    assert keda["triggers"][0]["metadata"]["threshold"] == "0.7"
    assert hpa["spec"]["metrics"][0]["external"]["target"]["averageValue"] == "700m"
    # KEDA makes an autoscaler of the same kind, so its behaviour is checked as that of one.
    behavior = keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == hpa["spec"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 600
