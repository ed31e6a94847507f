"""A coordinator for tests that knows one thing only: how to even a group out, a warm copy before each move.

And it can fail in every way that a coordinator can. What the real one decides is not tested with it.
"""

import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CAUGHT_UP = 100
"""Records that a copy may lack and is still said to be ready."""

Json = dict[str, Any]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of those who leave in the middle of an answer: here they are killed."""


class StubCoordinator:
    """Answers leaders of one group, or fails."""

    def __init__(self) -> None:
        """Listen on any free port."""
        self.rests = False
        self.hanging = threading.Event()
        self._fault = ""
        self._failed = threading.Event()
        self._released = threading.Event()
        self._target: dict[str, str] = {}
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = stub.answered(question)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def fail(self, fault: str) -> None:
        """Fail in a way from now on: hang, incomplete, unknown-process, no-json, unavailable; or not any more."""
        with self._lock:
            self._fault = fault
            self._failed.clear()
            self.rests = False
            if fault != "hang":
                self._released.set()

    def has_failed(self) -> bool:
        """Tell whether anybody has been answered in that way."""
        return self._failed.is_set()

    def close(self) -> None:
        """Stop, and let go of whoever waits."""
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answered(self, question: Json) -> tuple[int, bytes]:
        """Return the status and the answer to a question, or what is sent instead of one."""
        with self._lock:
            fault = self._fault
            decided = self._decide(question)
            self.rests = not fault and decided["followup_ms"] is None
        answer = json.dumps(decided) if not fault else self._failing(fault, decided)
        with self._lock:
            # One that hung may have been let go into another fault.
            if fault and fault == self._fault:
                self._failed.set()
        return 503 if fault == "unavailable" else 200, answer.encode()

    def _failing(self, fault: str, answer: Json) -> str:
        match fault:
            case "hang":
                self.hanging.set()
                self._released.wait(60)
            case "incomplete":
                fullest = max(answer["assignment"].values(), key=lambda has: len(has["active"]))
                fullest["active"].pop()
            case "unknown-process":
                answer["assignment"]["nobody"] = {"active": []}
            case _:
                return "<html>bad gateway</html>"
        return json.dumps(answer)

    def _decide(self, question: Json) -> Json:
        members = {each["id"]: each["tasks"] for each in question["members"]}
        tasks = [each["id"] for each in question["tasks"]]
        owners = {t: m for m, has in members.items() for t, copy in has.items() if copy["role"] == "active"}
        self._place(tasks, list(members), owners)
        assignment: Json = {each: {"active": [], "standby": [], "warmup": []} for each in members}
        moves, waits = 0, 0
        for task in tasks:
            target, owner = self._target[task], owners.get(task)
            lag = members[target].get(task, {}).get("lag")
            if owner in (target, None) or (lag is not None and lag <= CAUGHT_UP):
                assignment[target]["active"].append(task)
                moves += owner not in (target, None)
            else:
                assignment[str(owner)]["active"].append(task)
                if waits < question["config"]["max_warmup_replicas"]:
                    assignment[target]["warmup"].append(task)
                waits += 1
        rests = not moves and not waits
        return {
            "group": "stub",
            "assignment": assignment,
            "followup_ms": None if rests else 150 if moves else 1000,
            "followup_everyone": bool(moves),
        }

    def _place(self, tasks: list[str], members: list[str], owners: dict[str, str]) -> None:
        """Keep every target that there still is, and take from who has too many for who has too few."""
        for task in tasks:
            if self._target.get(task) not in members:
                self._target.pop(task, None)
                if task in owners:
                    self._target[task] = owners[task]
        for task in tasks:
            if task not in self._target:
                self._target[task] = min(members, key=lambda m: (self._load()[m], m))
        while True:
            load = {each: self._load()[each] for each in members}
            most, least = max(members, key=lambda m: (load[m], m)), min(members, key=lambda m: (load[m], m))
            if load[most] - load[least] < 2:
                return
            self._target[min(task for task, target in self._target.items() if target == most)] = least

    def _load(self) -> Counter[str]:
        return Counter(self._target.values())
