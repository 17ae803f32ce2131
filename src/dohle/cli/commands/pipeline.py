"""``dohle pipeline``: create, check and run a project of flows, and replay its dead letters."""

from __future__ import annotations

import argparse

from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import (
    BOOTSTRAP_DEFAULT,
    Commands,
    add_client_options,
    add_command,
    add_family,
    positive,
)

_INIT = """\
Create a project of Spark Declarative Pipelines in a new folder: a source topic, a
cleaned topic, a dead-letter topic, a table and an aggregate, in SQL and Python.
It runs unchanged against a broker on localhost:9092.
"""
_INIT_EXAMPLES = """\
examples:
  dohle pipeline init shop
"""
_RUN = """\
Run the flows of a project until they have read everything, and show rows, lag
and batch times. Checkpoints, the catalog and Spark's log are kept in the
project's folder .pipeline, tables in tables: a second run continues where this one
ended. PATH is a project's folder or its spark-pipeline.yml; without it, the
project that the current folder is in.
"""
_RUN_EXAMPLES = """\
examples:
  dohle pipeline run
  dohle pipeline run shop --watch
  dohle -b kafka-1:9092 pipeline run shop --json

exit codes: 0 the run was completed, 1 it failed, 2 wrong command line
"""
_DRY_RUN = """\
Check the flows of a project without running them: do they parse, do their
sources and columns exist?
"""
_DRY_RUN_EXAMPLES = """\
examples:
  dohle pipeline dry-run shop

exit codes: 0 all is well, 1 something is wrong, 2 wrong command line
"""
_REPLAY = """\
Send the records of a dead-letter topic back to their origin, which is in their
headers, without these headers. Each is sent once: the group of --group records,
in the same transaction, which were sent.
"""
_REPLAY_EXAMPLES = """\
examples:
  dohle pipeline replay shop-orders-dead --dry-run
  dohle pipeline replay shop-orders-dead
  dohle pipeline replay shop-orders-dead --to shop-orders-fixed -c 10
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``pipeline`` family."""
    family = add_family(commands, "pipeline", "run flows of topics on Spark")
    init = add_command(family, "init", "create a project that runs", _INIT, _INIT_EXAMPLES)
    init.add_argument("name", metavar="NAME", help="the name of the project and its folder")
    init.set_defaults(run=run_init)
    run = add_command(family, "run", "run a project's flows", _RUN, _RUN_EXAMPLES)
    _add_run_options(run)
    run.add_argument(
        "--watch", action="store_true", help=("continue with new records, until Ctrl-C")
    )
    run.add_argument(
        "--full-refresh-all",
        action="store_true",
        help="empty all tables and read all topics from the beginning",
    )
    run.set_defaults(run=run_flows, is_dry=False)
    dry_run = add_command(family, "dry-run", "check a project's flows", _DRY_RUN, _DRY_RUN_EXAMPLES)
    _add_run_options(dry_run)
    dry_run.set_defaults(run=run_flows, is_dry=True, watch=False, full_refresh_all=False)
    _add_replay(family)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help=("the project (default: the current one)")
    )
    parser.add_argument(
        "--master", metavar="URL", help="the Spark master (default: local[*], this machine)"
    )
    add_client_options(parser)


def _add_replay(family: Commands) -> None:
    parser = add_command(family, "replay", "send dead letters again", _REPLAY, _REPLAY_EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC", help="the dead-letter topic")
    parser.add_argument("--to", metavar="TOPIC", help="send all of them to this topic instead")
    parser.add_argument(
        "--group",
        default="dohle-replay",
        help=("the group that remembers what was sent (default: %(default)s)"),
    )
    parser.add_argument("-c", "--count", type=positive, metavar="N", help="send N at most")
    parser.add_argument(
        "--dry-run", action="store_true", help="only show what would be sent, and the errors"
    )
    add_client_options(parser)
    parser.set_defaults(run=run_replay)


def run_init(args: argparse.Namespace) -> int:
    """Create a project and say what to do with it."""
    from pathlib import Path

    from dohle.spark.pipelines.project import ProjectError, make_project

    try:
        folder = make_project(args.name, Path.cwd())
    except ProjectError as error:
        raise UsageError(str(error)) from None
    print(
        f"{folder.name}/ has a pipeline that runs; its README.md tells more\n"
        "\n"
        "try, with a broker running (dohle start):\n"
        f"  cd {folder.name}\n"
        f"  dohle produce {args.name}-orders < sample-orders.jsonl\n"
        "  dohle pipeline run\n"
        f"  dohle consume {args.name}-orders-clean -e"
    )
    return 0


def run_flows(args: argparse.Namespace) -> int:
    """Run or check a project."""
    from importlib.util import find_spec

    from dohle.cli.commands.pipeline_run import watch_runner
    from dohle.spark.pipelines.project import ProjectError, find_project
    from dohle.spark.pipelines.runner import Order

    if find_spec("pyspark") is None:
        raise CliError("Spark is not installed; `pip install 'dohle[spark]'` installs it")
    try:
        project = find_project(args.path)
    except ProjectError as error:
        raise UsageError(str(error)) from None
    order = Order(
        spec=str(project.spec),
        is_dry=args.is_dry,
        is_watching=args.watch,
        full_refresh_all=args.full_refresh_all,
        bootstrap=None if args.bootstrap == BOOTSTRAP_DEFAULT else args.bootstrap,
        master=args.master,
    )
    return watch_runner(project, order, as_json=args.json)


def run_replay(args: argparse.Namespace) -> int:
    """Send dead letters again."""
    from dohle.cli.commands.pipeline_replay import replay_letters

    return replay_letters(args)
