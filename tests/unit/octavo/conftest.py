"""Stand-ins for services: small programs that are ready, end, and note what happens to them."""

import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from octavo.services import Service
from octavo.settings import claim_port

PROGRAM = """
import http.server, os, signal, sys, time
name, port, journal, behaviour = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]

def note(what):
    with open(journal, "a") as file:
        file.write(f"{name} {what}\\n")

def end(number, frame):
    if behaviour == "stubborn":
        return
    note("ended")
    os._exit(0)

class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass

signal.signal(signal.SIGTERM, end)
note("started")
print(f"{name} says hello", flush=True)
if behaviour == "broken":
    sys.exit("this service is broken")
if behaviour == "flaky":
    started = time.monotonic()
    server = http.server.HTTPServer(("127.0.0.1", port), Ready)
    server.timeout = 0.05
    while time.monotonic() - started < 0.5:
        server.handle_request()
    sys.exit(3)
http.server.HTTPServer(("127.0.0.1", port), Ready).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class StandIns:
    """Makes stand-in services that write one journal."""

    program: Path
    journal: Path

    def service(self, name: str, behaviour: str = "good", stop_grace_s: float = 10.0) -> Service:
        port = claim_port("127.0.0.1", 0)
        command = (sys.executable, "-S", str(self.program), name, str(port), str(self.journal), behaviour)
        return replace(Service(name, f"http://127.0.0.1:{port}", command), stop_grace_s=stop_grace_s)

    def notes(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


@pytest.fixture
def stand_ins(tmp_path):
    program = tmp_path / "stand_in.py"
    program.write_text(PROGRAM)
    return StandIns(program, tmp_path / "journal")


@pytest.fixture
def serve():
    """Serves HTTP by a handler's class on a free port, and says at which address."""
    with ExitStack() as stack:

        def start(handler: type[BaseHTTPRequestHandler]) -> str:
            server = stack.enter_context(HTTPServer(("127.0.0.1", 0), handler))
            serving = threading.Thread(target=server.serve_forever, args=(0.01,))
            serving.start()
            stack.callback(serving.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start
