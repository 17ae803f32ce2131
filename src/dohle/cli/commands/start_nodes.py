"""``dohle start --nodes N``: a cluster on this machine, each of its nodes a process.

Every node is broker and controller. What the nodes log goes to stderr, each line with the number of
its node. Signals are for all: the nodes are told to stop, and this process ends with the last of
them. A node that ends by itself is told, and the others go on: that is what a cluster is for.

Each node has a ``server.properties`` in its folder: written at the first start, and kept later but
for what is chosen here, so that it can be edited.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import IO, NamedTuple

from dohle import __version__
from dohle.cli.cluster_folders import nodes_in
from dohle.cli.commands.node_properties import (
    DATA_DEFAULT,
    LISTENER_DEFAULT,
    METRICS_DEFAULT,
    load_and_report,
    read_properties,
)
from dohle.cli.errors import CliError, UsageError
from dohle.cli.free_ports import free_ports
from dohle.cli.local_cluster import (
    LocalNode,
    VoterConfig,
    format_nodes,
    properties_of,
    write_properties,
)
from dohle.cli.options import as_dict
from dohle.core.host import start_daemon_thread

NODES_MAX = 9

#: How far the ports for metrics are from those for clients: as with the defaults of one node.
_METRICS_DISTANCE = int(METRICS_DEFAULT.rpartition(":")[2]) - int(
    LISTENER_DEFAULT.rpartition(":")[2]
)
_PORT_MAX = 65_535

_STARTED = b"Kafka Server started\n"
#: Within this time a second signal belongs to the same wish to stop.
_SECOND_SIGNAL_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: What every node must have for itself.
_OWN = (
    *("process.roles", "node.id", "broker.id", "listeners", "advertised.listeners", "log.dirs"),
    *("log.dir", "metadata.log.dir", "metrics.listener", "controller.listener.names"),
    *("controller.quorum.voters", "controller.quorum.bootstrap.servers"),
)


def run_nodes(args: argparse.Namespace, data: Sequence[str] | None) -> int:
    """Run the nodes until a signal, and return the exit code."""
    more = as_dict(args.properties)
    _refuse(args, data, more)
    folder = Path(data[0] if data else DATA_DEFAULT)
    nodes = _plan(args.nodes, folder, args.listener or LISTENER_DEFAULT)
    _refuse_other_nodes(folder, nodes)
    found = [_properties(node, nodes) for node in nodes]
    load_and_report({**found[0], **more}, more, verbose=args.verbose)
    cluster_id = format_nodes(nodes)
    for node, properties in zip(nodes, found, strict=True):
        write_properties(_config_file(node), properties)
    shown = f" of cluster {cluster_id}\nbootstrap: " + ",".join(str(one.client) for one in nodes)
    running = _Nodes(nodes, _options(args), as_json=args.log_format == "json")
    if args.stop_at_eof:
        running.stop_at_eof()
    return running.run(
        f"dohle {__version__}, {len(nodes)} nodes{shown}\n"
        f"data:      {', '.join(str(node.data) for node in nodes)}"
        f"{' (removed at the end)' if args.ephemeral else ''}\n"
        f"metrics:   {', '.join(f'http://{node.metrics}/metrics' for node in nodes)}\n"
        "\n"
        "try in another terminal:\n"
        f"  dohle cluster quorum -b {nodes[0].client}\n"
        "\n"
        "Kafka Server started"
    )


def _config_file(node: LocalNode) -> Path:
    return node.data / "server.properties"


def _properties(node: LocalNode, nodes: Sequence[LocalNode]) -> dict[str, str]:
    """Return the configuration of a node: what its file says, but for what is chosen here."""
    chosen = properties_of(node, nodes, VoterConfig.STATIC, {})
    path = _config_file(node)
    if not path.exists():
        return chosen
    kept = read_properties(str(path))
    return chosen | {name: value for name, value in kept.items() if name not in _OWN}


def _refuse(args: argparse.Namespace, data: Sequence[str] | None, more: dict[str, str]) -> None:
    if args.nodes > NODES_MAX:
        raise UsageError(f"--nodes {args.nodes}: no more than {NODES_MAX} run on one machine")
    for option in ("config", "advertised", "node_id", "accept_metadata_loss", "secure"):
        if getattr(args, option):
            shown = option.replace("_", "-")
            raise UsageError(f"--{shown} is for one node, and does not go with --nodes")
    if data and len(data) > 1:
        raise UsageError("--nodes takes one --data: the folder in which each node gets its own")
    for name in sorted(more.keys() & set(_OWN)):
        raise UsageError(f"-X {name}: each of the nodes has its own, which --nodes chooses")


def _plan(number: int, folder: Path, listener: str) -> list[LocalNode]:
    host, _, port = listener.rpartition(":")
    if not (port.isascii() and port.isdigit()) or not host or host == "0.0.0.0":
        raise UsageError(f"--listener {listener}: --nodes needs HOST:PORT that clients can be told")
    metrics_host = METRICS_DEFAULT.rpartition(":")[0]
    if int(port):
        client, metrics = int(port), int(port) + _METRICS_DISTANCE
        ports = [*range(client, client + 2 * number), *range(metrics, metrics + number)]
        if ports[-1] > _PORT_MAX:
            raise UsageError(f"--listener {listener}: the ports up to {ports[-1]} are needed")
    else:
        ports = free_ports(3 * number)
    return [
        LocalNode(
            index + 1,
            folder / str(index + 1),
            f"{host}:{ports[index]}",
            f"{host}:{ports[number + index]}",
            f"{metrics_host}:{ports[2 * number + index]}",
        )
        for index in range(number)
    ]


def _refuse_other_nodes(folder: Path, nodes: Sequence[LocalNode]) -> None:
    """Refuse a folder of a cluster with other nodes: they vote on what is committed."""
    if (folder / "meta.properties").exists():
        raise CliError(
            f"{folder} has the data of a single node: choose another folder with --data, or leave "
            "out --nodes"
        )
    found = nodes_in(folder)
    has_run = any((path / "__cluster_metadata-0" / "quorum-state").exists() for path in found)
    if has_run and {path.name for path in found} != {str(node.id) for node in nodes}:
        raise CliError(
            f"{folder} has a cluster of other nodes ({', '.join(path.name for path in found)}): "
            "start these, or choose another folder with --data"
        )


def _options(args: argparse.Namespace) -> list[str]:
    """Return the options that the nodes get."""
    found = ["--request-log"] * args.request_log
    for name, default in (("log_level", "info"), ("log_format", "text")):
        if getattr(args, name) != default:
            found += [f"--{name.replace('_', '-')}", getattr(args, name)]
    for name, value in as_dict(args.properties).items():
        found += ["-X", f"{name}={value}"]
    return found


class _Kind(Enum):
    STARTED = "started"
    ENDED = "ended"
    TOLD_TO_STOP = "told to stop"


class _Event(NamedTuple):
    kind: _Kind
    node_id: int = 0
    code: int = 0


@dataclass(frozen=True, slots=True)
class _Running:
    node: LocalNode
    process: subprocess.Popen[bytes]


class _Nodes:
    """The processes, and what happens to them, one thing after the other."""

    def __init__(
        self, nodes: Sequence[LocalNode], options: Sequence[str], *, as_json: bool
    ) -> None:
        self._nodes = nodes
        self._options = options
        self._out = _Lines(as_json=as_json)
        # Signal handlers may put into this queue.
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._starting = {node.id for node in nodes}
        self._stopping_since_s: float | None = None
        self._has_failed = False

    def run(self, greeting: str) -> int:
        """Start all nodes, greet when they serve, and return when none is left."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: self._events.put(_Event(_Kind.TOLD_TO_STOP)))
        for node in self._nodes:
            self._spawn(node)
        while self._running:
            event = self._events.get()
            match event.kind:
                case _Kind.STARTED:
                    self._starting.discard(event.node_id)
                    if not self._starting and self._stopping_since_s is None:
                        print(greeting, flush=True)
                case _Kind.ENDED:
                    self._ended(self._running.pop(event.node_id), event.code)
                case _Kind.TOLD_TO_STOP:
                    self._stop()
        return 1 if self._has_failed else 0

    def stop_at_eof(self) -> None:
        """Stop when stdin ends, too."""

        def read() -> None:
            while os.read(sys.stdin.fileno(), 4096):
                pass
            self._events.put(_Event(_Kind.TOLD_TO_STOP))

        start_daemon_thread(read, "stdin")

    def _spawn(self, node: LocalNode) -> None:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "dohle", "start", "--config", str(_config_file(node))),
                # If this process is killed, its end of the pipe is closed.
                *("--stop-at-eof", *self._options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Ctrl-C is for this process alone, which tells all of them.
            start_new_session=True,
        )
        self._running[node.id] = _Running(node, process)
        start_daemon_thread(lambda: self._watch(node, process), f"node-{node.id}")
        start_daemon_thread(lambda: self._await_start(node, process.stdout), f"start-{node.id}")

    def _watch(self, node: LocalNode, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None, "it is a pipe"
        for line in process.stderr:
            self._out.write(node.id, line)
        self._events.put(_Event(_Kind.ENDED, node.id, process.wait()))

    def _await_start(self, node: LocalNode, stdout: IO[bytes] | None) -> None:
        assert stdout is not None, "it is a pipe"
        for line in stdout:
            if line == _STARTED:
                self._events.put(_Event(_Kind.STARTED, node.id))

    def _ended(self, ended: _Running, code: int) -> None:
        is_asked = self._stopping_since_s is not None
        if is_asked and code == 0:
            return
        self._has_failed = True
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        self._out.tell(ended.node.id, f"node {ended.node.id} {how}")
        if is_asked or not self._running:
            return
        if self._starting:
            self._out.tell(ended.node.id, "not all nodes have started: the others stop")
            self._stop()
            return
        command = shlex.join(
            ["dohle", "start", "--config", str(_config_file(ended.node)), *self._options]
        )
        self._out.tell(ended.node.id, f"the others go on; `{command}` starts it again")

    def _stop(self) -> None:
        """Tell all to stop; told again, end them at once."""
        number = signal.SIGTERM
        if self._stopping_since_s is None:
            self._stopping_since_s = monotonic()
        elif monotonic() - self._stopping_since_s > _SECOND_SIGNAL_S:
            number = signal.SIGKILL
        for each in self._running.values():
            each.process.send_signal(number)


class _Lines:
    """Stderr, for lines of several nodes."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()

    def tell(self, node_id: int, message: str) -> None:
        """Write a line of this process about a node."""
        if self._as_json:
            fields = {"level": "warning", "logger": "dohle.cli", "message": message}
            self.write(node_id, json.dumps(fields).encode() + b"\n")
        else:
            self._write(f"dohle: {message}\n".encode())

    def write(self, node_id: int, line: bytes) -> None:
        """Write a line of a node."""
        if not self._as_json:
            self._write(b"%d | %s" % (node_id, line))
        elif line.startswith(b"{"):
            self._write(b'{"node": %d, %s' % (node_id, line[1:]))
        else:
            fields = {"node": node_id, "message": line.decode(errors="replace").rstrip("\n")}
            self._write(json.dumps(fields).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        with self._lock:
            left = line
            while left:
                left = left[os.write(sys.stderr.fileno(), left) :]
