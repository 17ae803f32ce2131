"""Kafka's message definitions as data: read from JSON, and merged with those of an earlier state.

Version ranges become sets of the versions that the message has, so that merging is set arithmetic.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

Versions = frozenset[int]


@dataclass(frozen=True)
class FieldSpec:
    """A field, with version ranges as sets of the versions that the message has."""

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tag: int | None
    default: str
    ignorable: bool
    entity: str | None
    compact: bool
    fields: tuple[FieldSpec, ...]


@dataclass(frozen=True)
class MessageSpec:
    """A message as the JSON has it."""

    name: str
    type: str
    api_key: int | None
    versions: Versions
    flexible: Versions
    listeners: tuple[str, ...]
    unstable: bool
    fields: tuple[FieldSpec, ...]
    structs: dict[str, tuple[FieldSpec, ...]]
    release_versions: Versions


def read_folder(folder: Path) -> dict[str, MessageSpec]:
    """Read all definitions in a folder and its sub-folders, by name."""
    specs = [read_message(path.read_text("utf-8")) for path in sorted(folder.rglob("*.json"))]
    if not specs:
        raise SystemExit(f"{folder} holds no message definitions")
    return {spec.name: spec for spec in specs}


def read_message(text: str) -> MessageSpec:
    """Read one definition; comments start with two slashes."""
    data = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    valid = _versions(data["validVersions"], None)
    return MessageSpec(
        name=data["name"],
        type=data["type"],
        api_key=data.get("apiKey"),
        versions=valid,
        flexible=_versions(data.get("flexibleVersions", "none"), valid),
        listeners=tuple(data.get("listeners", ())),
        unstable=data.get("latestVersionUnstable", False),
        fields=_read_fields(data.get("fields", ()), valid),
        structs={
            struct["name"]: _read_fields(struct["fields"], valid)
            for struct in data.get("commonStructs", ())
        },
        release_versions=valid,
    )


def _read_fields(fields: Iterable[dict[str, Any]], valid: Versions) -> tuple[FieldSpec, ...]:
    return tuple(_read_field(data, valid) for data in fields)


def _read_field(data: dict[str, Any], valid: Versions) -> FieldSpec:
    tagged = data.get("taggedVersions", "none")
    versions = _versions(data.get("versions", tagged), valid)
    if "tag" in data and _versions(tagged, valid) != versions:
        raise ValueError(f"{data['name']} is tagged in some versions only: extend the language")
    if data.get("flexibleVersions", "none") != "none":
        raise ValueError(f"{data['name']} has flexible versions of its own: extend the language")
    default = data.get("default")
    return FieldSpec(
        name=snake_case(data["name"]),
        type=data["type"],
        versions=versions,
        nullable=_versions(data.get("nullableVersions", "none"), valid) & versions,
        tag=int(data["tag"]) if "tag" in data else None,
        default="" if default is None else str(default),
        ignorable=data.get("ignorable", False),
        entity=data.get("entityType"),
        compact="flexibleVersions" not in data,
        fields=_read_fields(data.get("fields", ()), valid),
    )


def _versions(text: str, valid: Versions | None) -> Versions:
    if text == "none":
        return frozenset()
    if text.endswith("+"):
        assert valid is not None, "open ranges need a closed one around them"
        return frozenset(version for version in valid if version >= int(text[:-1]))
    lowest, _, highest = text.partition("-")
    versions = frozenset(range(int(lowest), int(highest or lowest) + 1))
    return versions if valid is None else versions & valid


def snake_case(name: str) -> str:
    """Turn ``IsrWithEpochs`` into ``isr_with_epochs``."""
    name = name.replace("KRaft", "Kraft").replace("2Pc", "TwoPc")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def merge(new: MessageSpec, old: MessageSpec, *, unstable: bool) -> MessageSpec:
    """Add to a message the versions that only the older definition has and had promised."""
    promised = old.versions - {max(old.versions)} if unstable else old.versions
    added = promised - new.versions
    if not added:
        return new
    return replace(
        new,
        versions=new.versions | added,
        flexible=new.flexible | (old.flexible & added),
        fields=_merge_fields(new.fields, old.fields, added),
        structs={
            name: _merge_fields(new.structs.get(name, ()), old.structs.get(name, ()), added)
            for name in {**new.structs, **old.structs}
        },
    )


def _merge_fields(
    new: tuple[FieldSpec, ...], old: tuple[FieldSpec, ...], added: Versions
) -> tuple[FieldSpec, ...]:
    """Merge two lists of fields; what only the old one has keeps its place among the others."""
    merged = {spec.name: spec for spec in new}
    order = [spec.name for spec in new]
    position = 0
    for spec in old:
        if spec.name in merged:
            place = order.index(spec.name) + 1
            if place < position and spec.tag is None:
                raise ValueError(f"{spec.name} has moved: the old and the new order disagree")
            position = place
            merged[spec.name] = _merge_field(merged[spec.name], spec, added)
        else:
            merged[spec.name] = _restrict(spec, added)
            order.insert(position, spec.name)
            position += 1
    return tuple(merged[name] for name in order)


def _merge_field(new: FieldSpec, old: FieldSpec, added: Versions) -> FieldSpec:
    if (new.type, new.tag, new.default) != (old.type, old.tag, old.default):
        raise ValueError(f"{new.name} has changed its type, tag or default")
    return replace(
        new,
        versions=new.versions | (old.versions & added),
        nullable=new.nullable | (old.nullable & added),
        ignorable=new.ignorable or old.ignorable,
        fields=_merge_fields(new.fields, old.fields, added),
    )


def _restrict(spec: FieldSpec, versions: Versions) -> FieldSpec:
    return replace(
        spec,
        versions=spec.versions & versions,
        nullable=spec.nullable & versions,
        fields=tuple(_restrict(inner, versions) for inner in spec.fields),
    )


def merge_folders(
    new: dict[str, MessageSpec], old: dict[str, MessageSpec]
) -> dict[str, MessageSpec]:
    """Merge what can be asked of a broker; stored records need no older versions."""
    known_keys = {spec.api_key for spec in new.values() if spec.type == "request"}
    unstable_keys = {spec.api_key for spec in old.values() if spec.unstable}
    merged = dict(new)
    for name, spec in old.items():
        if spec.type not in ("request", "response", "header"):
            continue
        if name in new:
            unstable = spec.api_key is not None and spec.api_key in unstable_keys
            merged[name] = merge(new[name], spec, unstable=unstable)
        elif spec.api_key not in known_keys:  # a renamed message has its key still
            merged[name] = replace(spec, listeners=(), release_versions=frozenset())
    return merged
