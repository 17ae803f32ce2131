"""Topics on Spark: a ready session, and ``format("dohle")`` to read and write.

This package is imported wherever Spark looks for data sources, so it loads neither pyspark nor
pyarrow: what needs them imports them when it is called. They come with ``pip install
dohle[spark]``.
"""

from __future__ import annotations

from dohle.spark.session import session
from dohle.spark.setup.java import Java, JavaOrigin, JavaUnavailable, find_java
from dohle.spark.streams import stream

__all__ = ["Java", "JavaOrigin", "JavaUnavailable", "find_java", "session", "stream"]
