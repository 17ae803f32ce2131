"""A broker inside the test's own process: ``with Broker() as broker: broker.bootstrap``.

It runs on a thread and a loop of its own, listens on a free port of 127.0.0.1 and keeps its data in
a temporary folder that goes with it, unless ``data`` names one that stays.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from dohle.core.config.listeners import SecurityProtocol
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.server.node import Node
from dohle.testing.properties import as_property

_START_TIMEOUT_S = 30


class Broker:
    """A real broker, made for the length of a test."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        data: str | PathLike[str] | None = None,
        security: str | None = None,
    ) -> None:
        """``config`` has Kafka's names, and values as in Python: ``{"num.partitions": 3}``.

        ``security`` is SSL, SASL_PLAINTEXT or SASL_SSL: clients are let in by a certificate or a
        password only, ACLs count, and ``client_properties`` are what a client needs to be the user
        ``admin``, who may do everything. Those with TLS need ``dohle[tls]``.
        """
        self._security = None if security is None else _protocol(security)
        self.client_properties: Mapping[str, str] = {}
        self._overrides = {name: as_property(value) for name, value in (config or {}).items()}
        self._data = None if data is None else os.fspath(data)
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self.node: Node
        self.bootstrap = ""

    def start(self) -> Self:
        """Return when clients can connect."""
        if self._thread is not None:
            raise RuntimeError("this broker has been started before; make another one")
        self._folder = self._data or tempfile.mkdtemp(prefix="dohle-")
        self._thread = threading.Thread(target=self._run, name="dohle-broker", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {_START_TIMEOUT_S} s")
        if self._failure is not None:
            self._remove_data()
            raise self._failure
        return self

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        properties = {
            **SINGLE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": self._folder,
            **self._secured(),
            **self._overrides,
        }
        config, notices = BrokerConfig.from_properties(properties)
        for notice in notices:
            if notice.is_unknown:  # in a test it is a slip
                raise KafkaError(ErrorCode.INVALID_CONFIG, notice.message)
        self.node = Node(config)
        await self.node.start()
        self.bootstrap = self.node.bootstrap
        self._started.set()
        await self._stopping.wait()
        await self.node.stop()

    def _secured(self) -> Mapping[str, str]:
        if self._security is None:
            return {}
        from dohle.cli.development_security import development_security

        made = development_security(Path(self._folder), self._security)
        self.client_properties = made.client
        return made.broker

    def stop(self) -> None:
        """Stop cleanly and, if the data was temporary, remove it."""
        if self._thread is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(_START_TIMEOUT_S)
            if self._thread.is_alive():
                raise TimeoutError(f"the broker did not stop within {_START_TIMEOUT_S} s")
        self._remove_data()
        if self._failure is not None:
            raise self._failure

    def _remove_data(self) -> None:
        if self._data is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _protocol(name: str) -> SecurityProtocol:
    found = SecurityProtocol.__members__.get(name.upper())
    if found is None or found is SecurityProtocol.PLAINTEXT:
        raise ValueError(f"security is {name!r}: it must be SSL, SASL_PLAINTEXT or SASL_SSL")
    return found
