"""The Spark that pipelines run on: a private Connect server.

Declarative pipelines talk to Spark through Connect. The server listens on the loopback address, on
a free port, and accepts only clients with the token created for it. The catalog outlives the run:
the next one must find its tables.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dohle.spark.pipelines.project import Project
from dohle.spark.session import LOOPBACK, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService$"


class ConnectServer:
    """Spark with a Connect server in it, until it is stopped."""

    def __init__(self, project: Project, config: Mapping[str, str], master: str | None) -> None:
        self._token = secrets.token_urlsafe(16)
        settings = {
            **catalog_settings(project),
            **{name: value for name, value in config.items() if name.startswith("spark.")},
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": "0",
            "spark.connect.authenticate.token": self._token,
            # Spark's own class loaders isolate what clients add, as when it starts such a server
            # itself.
            "spark.sql.artifact.isolation.enabled": "true",
            "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        }
        self._spark = session(f"pipeline {project.folder.name}", master, settings)
        self.version = self._spark.version

    def connect(self) -> SparkSession:
        """Return a new session of a client."""
        from pyspark.sql import SparkSession

        jvm = cast(Any, self._spark.sparkContext)._jvm
        port = getattr(getattr(jvm, _SERVICE), "MODULE$").localPort()
        # With a token the client wants TLS, unless the server is named localhost.
        url = f"sc://localhost:{port}/;token={self._token}"
        return SparkSession.builder.remote(url).create()

    def stop(self) -> None:
        """Stop Spark."""
        self._spark.stop()


def catalog_settings(project: Project) -> dict[str, str]:
    """Return the settings of a persistent catalog in the project's folder."""
    project.state.mkdir(parents=True, exist_ok=True)
    database = f"jdbc:derby:;databaseName={project.state / 'metastore'};create=true"
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": project.tables.as_uri(),
        "spark.hadoop.javax.jdo.option.ConnectionURL": database,
        "spark.driver.extraJavaOptions": (
            f"-Dderby.stream.error.file={project.state / 'derby.log'}"
        ),
    }
