"""The program that runs a pipeline: one run, or one after the other as long as records come.

It reports on stdout, in JSON lines; everything else, including Spark's log, goes to stderr. It ends
when its stdin does, so it does not outlive the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dohle.spark.pipelines import events
from dohle.spark.pipelines.project import Project
from dohle.spark.pipelines.server import ConnectServer
from dohle.spark.pipelines.source_topics import SourceTopics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[Mapping[str, Any]], None]

BOOTSTRAP_CONF = "dohle.bootstrap"
_BOOTSTRAP_DEFAULT = "localhost:9092"
_EXIT_FAILURE = 1
_EXIT_ABANDONED = 130


@dataclass(frozen=True, slots=True)
class Order:
    """What to do; the program's one argument, as JSON."""

    spec: str
    is_dry: bool = False
    is_watching: bool = False
    full_refresh_all: bool = False
    #: Overrides the project's own.
    bootstrap: str | None = None
    master: str | None = None
    #: How long to wait between checks for new records.
    interval_s: float = 1.0

    def to_json(self) -> str:
        """Return the argument."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})


def main(argument: str) -> int:
    """Execute the order and return the exit code: 0 if every run was completed."""
    order = Order(**json.loads(argument))
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    warnings.simplefilter("ignore")
    with _telling() as tell:
        try:
            return _run(order, tell)
        except Exception as error:
            tell({"event": "error", "message": describe(error)})
            raise


def _end_with_stdin() -> None:
    # Bypasses buffers: the thread must not hold a lock of stdin when Python exits.
    while os.read(0, 1 << 10):
        pass
    os._exit(_EXIT_ABANDONED)


@contextmanager
def _telling() -> Iterator[Tell]:
    """Keep stdout for events: everything else that is printed goes to stderr."""
    lock = threading.Lock()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)

        def tell(event: Mapping[str, Any]) -> None:
            with lock:
                out.write(json.dumps(event) + "\n")
                out.flush()

        yield tell


def _run(order: Order, tell: Tell) -> int:
    from pyspark.pipelines import cli

    project = Project(Path(order.spec))
    spec = cli.load_pipeline_spec(project.spec)
    bootstrap = order.bootstrap or spec.configuration.get(BOOTSTRAP_CONF, _BOOTSTRAP_DEFAULT)
    config = {**spec.configuration, BOOTSTRAP_CONF: bootstrap}
    server = ConnectServer(project, config, order.master)
    try:
        tell({"event": "session", "spark": server.version, "java": os.environ.get("JAVA_HOME")})
        topics = SourceTopics(bootstrap)
        number = 0
        while True:
            number += 1
            client = server.connect()
            try:
                is_done = _run_once(order, project, config, client, topics, tell, number)
            finally:
                client.stop()
            if not is_done:
                return _EXIT_FAILURE
            if not order.is_watching:
                return 0
            topics.await_more(order.interval_s)
    finally:
        server.stop()


def _run_once(
    order: Order,
    project: Project,
    config: Mapping[str, str],
    spark: SparkSession,
    topics: SourceTopics,
    tell: Tell,
    number: int,
) -> bool:
    """Run all flows until they are caught up; return whether all succeeded."""
    from pyspark.pipelines import cli
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, start_run

    began = time.monotonic()
    tell({"event": "run", "run": number, "state": "STARTING"})
    spec = cli.load_pipeline_spec(project.spec)
    for name, value in config.items():
        if not name.startswith("spark."):
            spark.conf.set(name, value)
    listener = _listener(tell, topics)
    spark.streams.addListener(listener)
    failure: str | None = None
    try:
        graph = create_dataflow_graph(spark, spec.catalog, spec.database, config)
        registry = SparkConnectGraphElementRegistry(spark, graph)
        cli.register_definitions(project.spec, registry, spec, spark, graph)
        answers = start_run(
            spark,
            graph,
            full_refresh=[],
            full_refresh_all=order.full_refresh_all,
            refresh=[],
            dry=order.is_dry,
            storage=project.storage(spec.storage),
        )
        for answer in answers:
            if "pipeline_event_result" in answer:
                event = events.of_message(answer["pipeline_event_result"].event.message)
                if event["event"] != "run":
                    tell(event)
    except Exception as error:
        # Flows are user code: whatever it raises ends the run, and is reported like that.
        traceback.print_exc()
        failure = describe(error)
    finally:
        spark.streams.removeListener(listener)
    if failure is not None:
        tell({"event": "error", "message": failure})
    state = "COMPLETED" if failure is None else "FAILED"
    elapsed_ms = round((time.monotonic() - began) * 1000)
    tell({"event": "run", "run": number, "state": state, "elapsedMs": elapsed_ms})
    return failure is None


def _listener(tell: Tell, topics: SourceTopics) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
            progress = json.loads(event.progress.json)
            topics.note(progress["name"], events.positions_of(progress))
            tell(events.of_progress(progress))

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
            pass

    return Listener()


def describe(error: BaseException) -> str:
    """Return the line of an error that says what was wrong; the log has the rest.

    That is the first line, unless a Python traceback follows: then the last line of that.
    """
    text = str(cast(Any, error).getMessage() or "") if hasattr(error, "getMessage") else ""
    lines = [line for line in (text or str(error)).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if not lines[0].endswith("Traceback (most recent call last):"):
        return lines[0]
    # Indented lines belong to the traceback; the next line is the exception.
    return next((line for line in lines[1:] if not line[0].isspace()), lines[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
