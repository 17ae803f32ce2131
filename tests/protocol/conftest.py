"""Large messages may be drawn here; other libraries are imported without their warnings."""

from __future__ import annotations

import importlib
import warnings

from hypothesis import HealthCheck, settings

settings.register_profile(
    "protocol",
    settings.get_profile("dohle"),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("protocol")

# kafka-python reads its schemas by a function that the standard library deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("admin", "consumer", "metadata", "producer", "sasl"):
        importlib.import_module(f"kafka.protocol.{name}")
