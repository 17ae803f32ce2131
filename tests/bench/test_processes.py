"""What is measured of a server from outside includes the processes that it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.processes import Measured

#: Computes for a while, in a process that ends after the second line of stdin.
SERVER = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", '''
import sys, time
kept = bytearray(b"x" * 50_000_000)
while time.process_time() < 0.3:
    pass
print("computed", flush=True)
sys.stdin.readline()
'''],
    stdin=subprocess.PIPE,
)
sys.stdin.readline()
child.communicate()
print("ended", flush=True)
sys.stdin.readline()
"""


class Server(Measured):
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def await_line(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line + "\n"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_processor_time_and_memory_of_children_count() -> None:
    server = Server()
    try:
        server.await_line("computed")
        assert server.cpu_s > 0.3
        assert server.rss_mb > 50
        server.go_on()
        server.await_line("ended")
        # Hundredths of seconds are counted of what has ended.
        assert server.cpu_s > 0.29
        assert server.rss_mb < 50
    finally:
        server.stop()
