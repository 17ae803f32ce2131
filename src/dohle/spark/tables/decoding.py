"""The result of decoding a topic's records: rows in typed columns, and the refused records.

Both are lazy DataFrames over the same records. A refused record keeps all its columns, so that it
can be forwarded unchanged, with the reason; its topic, partition and offset identify its origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as f

from dohle.spark.tables.columns import TableError

ERROR = "error"
NO_VALUE = "the record has no value"

Kept = Sequence[str] | Mapping[str, str]


class Tombstones(Enum):
    """What to do with records without a value, with which compacted topics delete a key."""

    REFUSE = "refuse"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Decoded:
    """``rows`` with the schema's columns; ``bad`` with the records' columns and ``error``."""

    rows: DataFrame
    bad: DataFrame


def check_records(records: DataFrame, *value_types: type[types.DataType]) -> None:
    """Refuse records without a suitable column to decode."""
    if "value" not in records.columns:
        raise TableError(f"records have a column 'value'; these have {', '.join(records.columns)}")
    kind = records.schema["value"].dataType
    if not isinstance(kind, value_types):
        wanted = " or ".join(one.typeName() for one in value_types)
        raise TableError(f"the column 'value' is {kind.simpleString()}, not {wanted}")
    if ERROR in records.columns:
        raise TableError(f"the column {ERROR!r} is for the reason of a refusal; rename yours")


def without_tombstones(records: DataFrame, tombstones: Tombstones) -> DataFrame:
    """Leave out records without a value, if that is asked for."""
    if tombstones is Tombstones.DROP:
        return records.where(f.col("value").isNotNull())
    return records


def kept_columns(kept: Kept, records: DataFrame, schema: types.StructType) -> list[Column]:
    """Return the record's columns to keep next to its fields, under their new names."""
    names = dict(kept) if isinstance(kept, Mapping) else {name: name for name in kept}
    taken = {name.lower() for name in schema.names}
    for name, new_name in names.items():
        if name not in records.columns:
            raise TableError(f"records have no column {name!r} to keep")
        if new_name.lower() in taken:
            raise TableError(
                f"{new_name!r} is a field of the value as well: keep={{{name!r}: 'record_{name}'}} "
                "keeps it under another name"
            )
        taken.add(new_name.lower())
    return [f.col(name).alias(new_name) for name, new_name in names.items()]
