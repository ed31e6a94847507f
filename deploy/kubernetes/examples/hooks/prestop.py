"""What a worker's pod does before it is stopped: hand its tasks over warm, or only make sure that it comes back.

    python3 prestop.py {auto|drain|restart} GROUP [--timeout 9m] [--deadline 90s]

`restart`: nothing; the worker leaves with its place kept, and its state waits on its volume. `drain`: hands every task
over while it goes on processing. `auto`, for a StatefulSet: drains where the set is to have so few pods that this is
none of them, and else restarts; that asks the API server, for which the pod's account may read the set. Whatever goes
wrong, the pod is stopped all the same, so the exit code is always 0 and the words go to the container's log.
"""

import json
import os
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LOG = Path("/proc/1/fd/1")


def wanted_pods(name: str) -> int:
    """Return the number after that of the last pod that a StatefulSet of this namespace is to have."""
    address, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    namespace = (ACCOUNT / "namespace").read_text().strip()
    url = f"https://{host}/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    request = Request(url)
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    trusted = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    # By no proxy: the API server is in the cluster, and NO_PROXY has networks, which Python does not know.
    with build_opener(ProxyHandler({}), HTTPSHandler(context=trusted)).open(request, timeout=5) as answer:
        spec = json.load(answer)["spec"]
    return int(spec["replicas"]) + int(spec.get("ordinals", {}).get("start", 0))


def decide(mode: str, pod: str) -> str:
    """Return `drain` or `restart`; the latter where the set cannot be asked: most stops by far are restarts."""
    if mode != "auto":
        return mode
    name, _, number = pod.rpartition("-")
    try:
        return "drain" if int(number) >= wanted_pods(name) else "restart"
    except (OSError, KeyError, ValueError) as error:
        say(f"the StatefulSet cannot be asked ({error!r}); taking this for a restart")
        return "restart"


def say(words: str) -> None:
    """Write to the container's log, which a hook's own output does not reach."""
    line = f"preStop: {words}\n"
    try:
        with LOG.open("a") as log:
            log.write(line)
    except OSError:
        sys.stderr.write(line)


def main(arguments: list[str]) -> int:
    """Do what the mode says."""
    mode, group, *options = arguments
    pod = os.environ["HOSTNAME"]
    way = decide(mode, pod)
    say(f"{pod} is to {way}")
    if way == "drain":
        command = ["batonpass", "drain", group, pod, "--wait", "--reason", f"preStop ({mode})", *options]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            say(f"batonpass cannot be run: {error}")
        else:
            say((done.stdout + done.stderr).strip())
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in {"auto", "drain", "restart"}:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
