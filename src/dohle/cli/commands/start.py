"""``dohle start``: run a broker in the foreground until SIGTERM or Ctrl-C.

Stdout gets what a person, or a program that waits for the broker, needs once; its last line is
``Kafka Server started``, printed when clients are served. Stderr gets the log.
"""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError, describe_os_error
from dohle.cli.options import (
    BOOTSTRAP_DEFAULT,
    Commands,
    add_command,
    add_data_option,
    as_dict,
    node_id,
    pair,
    positive,
)

if TYPE_CHECKING:
    from dohle.cli.development_security import DevelopmentSecurity
    from dohle.core.config.static import BrokerConfig
    from dohle.server.node import Node

_DESCRIPTION = """\
Run a broker: a node that is a whole Kafka cluster by itself. It needs no
configuration; the server.properties of a Kafka in KRaft mode works unchanged.
Data directories are formatted if they are empty, and recovered if the last stop
was not a clean one. SIGTERM, SIGHUP or Ctrl-C stops it cleanly.

With --nodes N, run a cluster of N such nodes, each in a process of its own. They
log to stderr, and each line begins with the number of its node. If a node ends by
itself, that is reported, and the others go on.
"""
_EXAMPLES = """\
examples:
  dohle start
  dohle start --ephemeral --listener 127.0.0.1:0
  dohle start --config server.properties --data /disk1/kafka --data /disk2/kafka
  dohle start --listener 0.0.0.0:9092 --advertised kafka.example.org
  dohle start -X num.partitions=3 -X auto.create.topics.enable=false
  dohle start --log-format json --request-log
  dohle start -X metrics.listener=0.0.0.0:9644
  dohle start --tier /mnt/archive
  dohle start --secure
  dohle start --nodes 3
  dohle start --nodes 3 --ephemeral --listener 127.0.0.1:0

exit codes: 0 stopped on request, 1 could not start or failed (with --nodes: one of
them did), 2 wrong command line or configuration
"""
_METADATA_REPLICAS = 3
_LEVELS = ("debug", "info", "warning", "error")


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(commands, "start", "run a broker", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("--config", metavar="FILE", help="a server.properties")
    add_data_option(parser, "the file's, or ./data")
    parser.add_argument(
        "--listener",
        metavar="HOST:PORT",
        help="the address to listen on; port 0 takes a free one, no host means all addresses "
        "(default: the file's, or 127.0.0.1:9092)",
    )
    parser.add_argument(
        "--advertised",
        metavar="HOST[:PORT]",
        help="the address that clients are told, if it is not the one to listen on",
    )
    parser.add_argument(
        "--nodes",
        type=positive,
        metavar="N",
        help="run a cluster of N nodes on this machine, with their data in ./data/1 to ./data/N "
        "(or in such folders of --data) and their ports from --listener on: N for clients, then N "
        "for controllers; metrics 552 above, from 9644 on. Each has a server.properties in its "
        "folder, which may be edited except for addresses, directories and voters",
    )
    parser.add_argument(
        "--node-id",
        type=node_id,
        metavar="ID",
        help="this node's id (default: the file's, or that of the data directory, or 1)",
    )
    parser.add_argument(
        "--tier",
        metavar="URL",
        help="where topics with remote.storage.enable=true keep closed segments, so that only the "
        "newest ones need room here: file:///FOLDER or a folder, which all brokers see, or "
        "s3://BUCKET, gs://BUCKET, az://CONTAINER (needs dohle[tiered])",
    )
    parser.add_argument(
        "-X",
        dest="properties",
        type=pair,
        action="append",
        metavar="NAME=VALUE",
        help="a config as in the file; overrides the file and the other options; may be repeated",
    )
    parser.add_argument(
        "--ephemeral",
        action="store_true",
        help="keep the data in a temporary directory that is removed at the end",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="for development: let clients in by TLS and a password only, and make what that needs "
        "in the data directory: an authority, a certificate, and a user admin who may do "
        "everything (needs dohle[tls]). What is there is used again",
    )
    parser.add_argument(
        "--accept-metadata-loss",
        action="store_true",
        help="start though the metadata log has lost topics: their partitions are set aside",
    )
    parser.add_argument(
        "--stop-at-eof",
        action="store_true",
        help="also stop when stdin ends, as it does with the program at the other end of a pipe",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also list the configs that Kafka has but that have no effect here",
    )
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="the log level (default: info)"
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="default: text"
    )
    parser.add_argument("--request-log", action="store_true", help="also log each request")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the broker, in a temporary directory if it is ephemeral."""
    if args.tier is not None:
        args.properties = [*_tier_properties(args.tier, args.nodes), *(args.properties or [])]
    if not args.ephemeral:
        return _run_some(args, args.data)
    if args.data:
        raise UsageError("--ephemeral uses a temporary directory: leave out --data")
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dohle-", ignore_cleanup_errors=True) as folder:
        return _run_some(args, [folder])


def _tier_properties(url: str, nodes: int | None) -> list[tuple[str, str]]:
    """Return what ``--tier`` stands for."""
    if "://" not in url:
        url = os.path.abspath(url)
    found = [("remote.log.storage.system.enable", "true"), ("rsm.config.url", url)]
    if nodes is not None:
        replicas = str(min(nodes, _METADATA_REPLICAS))
        found.append(("rlmm.config.remote.log.metadata.topic.replication.factor", replicas))
    return found


def _run_some(args: argparse.Namespace, data: list[str] | None) -> int:
    if args.nodes is None:
        return _run(args, data)
    from dohle.cli.commands.start_nodes import run_nodes

    return run_nodes(args, data)


def _run(args: argparse.Namespace, data: list[str] | None) -> int:
    from pathlib import Path

    from dohle.cli.cluster_folders import refuse_folder_of_nodes
    from dohle.cli.commands.node_properties import (
        DATA_DEFAULT,
        lay_over,
        load_and_report,
        read_properties,
        refuse_zookeeper_mode,
        with_metrics,
    )
    from dohle.cli.log_lines import finish_logging, start_logging

    file = {} if args.config is None else read_properties(args.config)
    more = as_dict(args.properties)
    secured = _secured(args, data) if args.secure else None
    if secured is not None:
        # The address is chosen below, as that of any node.
        file = {name: text for name, text in secured.broker.items() if name != "listeners"}
    refuse_zookeeper_mode(args.config, file)
    _refuse_unreachable(args.listener, args.advertised, more)
    properties = lay_over(
        file,
        data=data,
        listener=args.listener,
        advertised=args.advertised,
        node_id=args.node_id,
        more=more,
    )
    properties = with_metrics(properties)
    config = load_and_report(properties, more, verbose=args.verbose)
    _check_directories(config.log_dirs)
    for path in config.log_dirs:
        refuse_folder_of_nodes(Path(path), Path(DATA_DEFAULT))
    log = start_logging(
        level=args.log_level, as_json=args.log_format == "json", requests=args.request_log
    )
    try:
        return _serve(
            config,
            client_file=None if secured is None else str(secured.client_file),
            is_ephemeral=args.ephemeral,
            accept_metadata_loss=args.accept_metadata_loss,
            lifeline=sys.stdin.fileno() if args.stop_at_eof else None,
        )
    finally:
        finish_logging(log)


def _secured(args: argparse.Namespace, data: list[str] | None) -> DevelopmentSecurity:
    """Make what ``--secure`` needs, or take what is there."""
    from pathlib import Path

    from dohle.cli.commands.node_properties import DATA_DEFAULT
    from dohle.cli.development_security import development_security
    from dohle.core.config.listeners import SecurityProtocol

    if args.config is not None:
        raise UsageError(
            "--secure makes the configuration that --config has: leave out one of them (see "
            "docs/security.md for a file)"
        )
    hosts = [_host_of(address) for address in (args.listener, args.advertised) if address]
    folder = Path((data or [DATA_DEFAULT])[0])
    return development_security(folder, SecurityProtocol.SASL_SSL, hosts)


def _host_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    return (host if colon and port.isdigit() else address).strip("[]")


def _refuse_unreachable(listener: str | None, advertised: str | None, more: dict[str, str]) -> None:
    """Ask for an address that clients can be told."""
    is_told = advertised is not None or "advertised.listeners" in more
    if listener is not None and listener.rpartition(":")[0] == "0.0.0.0" and not is_told:
        raise UsageError(
            f"--listener {listener} is every address of this machine, and clients have to be told "
            "one of them: add --advertised HOST, or -X advertised.listeners=PLAINTEXT://HOST:PORT"
        )


def _check_directories(paths: Sequence[str]) -> None:
    """Refuse to start if no directory is usable; the node can do without some of them."""
    problems = [problem for path in paths if (problem := _problem_of(path)) is not None]
    if len(problems) == len(paths):
        raise CliError(f"no data directory is usable: {'; '.join(problems)}")


def _problem_of(path: str) -> str | None:
    """Return why a directory cannot be written to or created; nothing is created here."""
    found = os.path.abspath(path)
    while not os.path.lexists(found):
        found = os.path.dirname(found)
    if not os.path.isdir(found):
        return f"{path}: {os.strerror(errno.ENOTDIR)}"
    if not os.access(found, os.W_OK | os.X_OK):
        return f"{path}: {os.strerror(errno.EACCES)}"
    return None


def _serve(
    config: BrokerConfig,
    *,
    client_file: str | None,
    is_ephemeral: bool,
    accept_metadata_loss: bool,
    lifeline: int | None,
) -> int:
    import logging

    from dohle.core.errors import KafkaError
    from dohle.server.quorum.loss import MetadataLost
    from dohle.server.quorum.metadata_log import CorruptMetadataLog
    from dohle.server.run import run_loop, serve
    from dohle.storage.directory.directory import LogDirectoryInUse
    from dohle.storage.directory.meta_properties import InvalidMetaProperties

    has_started = False

    def on_started(node: Node) -> None:
        nonlocal has_started
        has_started = True
        _greet(node, client_file, is_ephemeral=is_ephemeral)

    try:
        return run_loop(
            serve(config, on_started, accept_metadata_loss=accept_metadata_loss, lifeline=lifeline)
        )
    except (
        InvalidMetaProperties,
        LogDirectoryInUse,
        CorruptMetadataLog,
        MetadataLost,
        KafkaError,
    ) as error:
        raise CliError(str(error.args[0])) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    except Exception as error:
        if has_started:
            raise
        logging.getLogger("dohle.server").debug("the start failed", exc_info=True)
        raise CliError(
            f"could not start: {error} ({type(error).__name__}; --log-level debug shows where)"
        ) from None


def _greet(node: Node, client_file: str | None, *, is_ephemeral: bool) -> None:
    """Print where the broker is and what to try, then that it is serving.

    ``client_file`` is what clients need to be let in, if that was made here.
    """
    from dohle import __version__

    data = ", ".join(node.config.log_dirs) + (" (removed at the end)" if is_ephemeral else "")
    name = "bootstrap:" if node.config.placement.is_broker else "endpoint: "
    print(
        f"dohle {__version__}, node {node.config.node_id} of cluster {node.cluster_id}\n"
        f"{name} {node.bootstrap}\n"
        f"data:      {data}\n"
        f"{_metrics_line(node)}"
        f"{_secured_line(client_file)}"
        "\n"
        f"{_what_to_try(node, client_file)}"
        "Kafka Server started",
        flush=True,
    )


def _what_to_try(node: Node, client_file: str | None) -> str:
    if not node.config.placement.is_broker:
        return ""
    option = "" if _is_default(node.bootstrap) else f" -b {node.bootstrap}"
    shown = "try in another terminal:\n"
    if client_file is not None:
        shown += f"  export DOHLE_COMMAND_CONFIG={shlex.quote(client_file)}\n"
    shown += (
        f"  echo hello | dohle produce greetings{option}\n  dohle consume greetings -e{option}\n"
    )
    if client_file is not None:
        shown += (
            f"  dohle user set alice{option}\n"
            f"  dohle acl add --principal User:alice --producer --topic greetings{option}\n"
        )
    return shown + "\n"


def _secured_line(client_file: str | None) -> str:
    if client_file is None:
        return ""
    return f"secured:   by TLS and a password; those of admin are in {client_file}\n"


def _metrics_line(node: Node) -> str:
    if node.metrics is None:
        return ""
    host, port = node.metrics.host, node.metrics.port
    shown = f"[{host}]" if ":" in host else host
    return f"metrics:   http://{shown}:{port}/metrics\n"


def _is_default(bootstrap: str) -> bool:
    return bootstrap in (BOOTSTRAP_DEFAULT, BOOTSTRAP_DEFAULT.replace("localhost", "127.0.0.1"))
