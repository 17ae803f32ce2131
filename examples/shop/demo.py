"""A broker, a generator of orders and clicks, and the pipeline; shows its results as they change.

Everything is in a temporary folder and stops with Ctrl-C, or after ``--runs N`` runs.
"""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow.parquet
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
STOP_TIMEOUT_S = 60
console = Console()


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, help="stop after so many runs of the pipeline")
    runs = parser.parse_args().runs
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dohle-demo-")))
        ignored = shutil.ignore_patterns(".pipeline", "tables", "__pycache__")
        project = shutil.copytree(HERE, folder / "shop", ignore=ignored)
        bootstrap = start_broker(stack, folder)
        console.print(f"a broker at {bootstrap}; orders and clicks are being written")
        start(stack, [sys.executable, str(project / "generate.py"), bootstrap])
        command = [*dohle("-b", bootstrap, "--json"), "pipeline", "run", str(project), "--watch"]
        pipeline = start(stack, command, stdout=subprocess.PIPE)
        console.print("Spark is starting, which takes some seconds; Ctrl-C stops everything")
        return follow(pipeline, project, bootstrap, runs)
    console.print("stopped")
    return 0


def dohle(*arguments: str) -> list[str]:
    """Return a command of this Python's dohle."""
    return [sys.executable, "-m", "dohle", *arguments]


def start(stack: ExitStack, command: list[str], **options: object) -> subprocess.Popen:
    """Start a process that is stopped with the demo."""
    process = subprocess.Popen(command, text=True, start_new_session=True, **options)
    stack.callback(stop, process)
    return process


def stop(process: subprocess.Popen) -> None:
    """Ask a process to end, and wait for it."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    if process.poll() is None:
        process.kill()
        process.wait()


def start_broker(stack: ExitStack, folder: Path) -> str:
    """Start a broker on a free port and return its address."""
    log = stack.enter_context((folder / "broker.log").open("w"))
    command = dohle("start", "--data", str(folder / "data"), "--listener", "127.0.0.1:0")
    # What a batch has decided to write may then wait for its end for as long as it takes.
    command += ["-X", "transaction.two.phase.commit.enable=true"]
    broker = start(stack, command, stdout=subprocess.PIPE, stderr=log)
    bootstrap = ""
    for line in broker.stdout:
        if found := re.match(r"bootstrap: +(\S+)", line):
            bootstrap = found[1]
        if line == "Kafka Server started\n":
            return bootstrap
    raise SystemExit(f"the broker did not start:\n{(folder / 'broker.log').read_text()}")


def follow(pipeline: subprocess.Popen, project: Path, bootstrap: str, runs: int | None) -> int:
    """Show the results of each run of the pipeline."""
    counts: dict[str, list[int]] = {}
    for line in pipeline.stdout:
        event = json.loads(line)
        if event["event"] == "progress":
            seen = counts.setdefault(event["flow"], [0, 0])
            seen[0] += event["rowsIn"]
            seen[1] += event["rowsOut"] or 0
        elif event["event"] == "error":
            console.print(f"[red]{event['message']}")
        elif "elapsedMs" in event:
            show(project, event, counts)
            if event["run"] == runs:
                return 0
    return pipeline.wait()


def show(project: Path, event: dict, counts: dict[str, list[int]]) -> None:
    """Show the view over orders and clicks, and what went to which topic."""
    table = Table(
        title=f"run {event['run']}, {event['elapsedMs'] / 1000:.1f} s", title_justify="left"
    )
    rows = pyarrow.parquet.read_table(project / "tables" / "funnel").to_pylist()
    for name in ("product", "clicks", "orders", "revenue"):
        table.add_column(name, justify="left" if name == "product" else "right")
    for row in sorted(rows, key=lambda row: row["product"]):
        table.add_row(
            row["product"], f"{row['clicks']}", f"{row['orders']}", f"{row['revenue']:.2f}"
        )
    console.print(table)
    clean, dead = counts.get("clean", [0, 0])[1], counts.get("dead", [0, 0])[1]
    console.print(f"shop-orders-clean: {clean} orders, shop-orders-dead: {dead} orders\n")


if __name__ == "__main__":
    sys.exit(main())
