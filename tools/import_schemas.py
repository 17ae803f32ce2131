"""Turn Kafka's JSON message definitions into the declarations of ``dohle.protocol.messages``.

    python tools/import_schemas.py KAFKA_4_2 --older KAFKA_PRE_4_0 --out src/dohle/protocol/messages

The first folder holds the definitions of a release, in sub-folders or not. ``--older`` may name an
earlier state: request and response versions that the release has dropped are taken from there, so
that an old client can still be served. For a version that both know, the release's word counts; an
older version that was marked unstable is left out, since nobody was promised it.

The output is meant to be read and is committed. It depends on nothing but the input, so running
this again gives no difference.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schema_definitions import (
    FieldSpec,
    MessageSpec,
    Versions,
    merge_folders,
    read_folder,
    snake_case,
)

#: Kafka's type: (function that declares it, type that its users see).
PRIMITIVES = {
    "bool": ("boolean", "bool"),
    "int8": ("int8", "int"),
    "int16": ("int16", "int"),
    "int32": ("int32", "int"),
    "int64": ("int64", "int"),
    "uint16": ("uint16", "int"),
    "uint32": ("uint32", "int"),
    "float64": ("float64", "float"),
    "string": ("string", "str"),
    "bytes": ("binary", "bytes"),
    "records": ("record_data", "Records"),
    "uuid": ("uuid", "Uuid"),
}
ENTITIES = {
    "brokerId": "BrokerId",
    "groupId": "GroupId",
    "producerId": "ProducerId",
    "topicName": "TopicName",
    "transactionalId": "TransactionalId",
}
#: Names that a field must not take: a message has them already, or a declaration needs them.
TAKEN = {"encode", "encode_chunks", "decode", "from_bytes", "replace", "unknown_tags"}
TAKEN |= {function for function, _ in PRIMITIVES.values()} | {"array", "struct"}

#: Where messages that are not requests or responses go: (type, pattern of the name, module).
MODULES = (
    ("header", r"", "header"),
    ("metadata", r"Remote", "records.storage"),
    ("metadata", r"", "records.cluster_metadata"),
    ("coordinator-.*", r"ConsumerGroup", "records.consumer_group"),
    ("coordinator-.*", r"ShareGroup", "records.share_group"),
    ("coordinator-.*", r"StreamsGroup", "records.streams_group"),
    ("coordinator-.*", r"Share", "records.share_state"),
    ("coordinator-.*", r"Transaction", "records.transaction"),
    ("coordinator-.*", r"", "records.classic_group"),
    ("data", r"ConsumerProtocol", "consumer_protocol"),
    ("data", r"DefaultPrincipal", "principal"),
    ("data", r"ProducerSnapshot", "records.storage"),
    ("data", r"QuorumState", "records.raft"),
    ("data", r"", "records.control"),
)
TITLES = {
    "header": "What stands before requests and responses.",
    "consumer_protocol": "What consumers of a classic group tell each other.",
    "principal": "A principal as the broker hands it to the controller.",
    "records.cluster_metadata": "The records of the cluster metadata log.",
    "records.classic_group": "Records of the group coordinator: offsets and classic groups.",
    "records.consumer_group": "Records of the group coordinator: consumer groups.",
    "records.share_group": "Records of the group coordinator: share groups.",
    "records.streams_group": "Records of the group coordinator: streams groups.",
    "records.share_state": "Records of the share coordinator.",
    "records.transaction": "Records of the transaction coordinator.",
    "records.storage": "Producer snapshots and the records about remote log segments.",
    "records.raft": "The state file of the quorum.",
    "records.control": "The contents of control records.",
}
#: The coordinator whose topic holds the records of a module.
FAMILIES = {
    "records.classic_group": "group",
    "records.consumer_group": "group",
    "records.share_group": "group",
    "records.streams_group": "group",
    "records.share_state": "share",
    "records.transaction": "transaction",
}
BASES = {
    "request": "Request",
    "response": "Response",
    "header": "Header",
    "data": "Data",
    "metadata": "MetadataRecord",
    "coordinator-key": "CoordinatorKey",
    "coordinator-value": "CoordinatorValue",
}


@dataclass
class Module:
    """A module of declarations in the making."""

    title: str
    messages: list[MessageSpec] = field(default_factory=list)
    uses: set[str] = field(default_factory=set)
    classes: dict[str, str] = field(default_factory=dict)

    def render(self) -> str:
        """Return the text of the module, not yet formatted."""
        clashes = self._clashing_structs()
        for message in self.messages:
            self._add_message(message, clashes)
        imports = "".join(self._imports())
        return (
            f'"""{self.title}\n\nWritten by tools/import_schemas.py; do not edit.\n"""\n\n'
            f"from __future__ import annotations\n\n{imports}\n\n"
            + "\n\n".join(self.classes.values())
        )

    def _imports(self) -> Iterator[str]:
        functions = {function for function, _ in PRIMITIVES.values()} | {"array", "struct"}
        for module, names in (
            ("dohle.core.ids", {*ENTITIES.values(), "Uuid"}),
            ("dohle.protocol.fields", functions),
            ("dohle.protocol.schema", {*BASES.values(), "Struct", "Records"}),
        ):
            if used := sorted(names & self.uses):
                yield f"from {module} import {', '.join(used)}\n"

    def _clashing_structs(self) -> set[str]:
        """Find names that two messages of this module give to different structs."""
        seen: dict[str, object] = {}
        clashes = set()
        for message in self.messages:
            for name, fields in _structs_of(message):
                if seen.setdefault(name, fields) != fields:
                    clashes.add(name)
        return clashes

    def _add_message(self, message: MessageSpec, clashes: set[str]) -> None:
        def class_name(struct: str) -> str:
            return message.name + struct if struct in clashes else struct

        for name, fields in _structs_of(message):
            self.uses.add("Struct")
            self.classes[class_name(name)] = self._class(
                f"class {class_name(name)}(Struct):", fields, message.versions, class_name
            )
        base = BASES[message.type]
        self.uses.add(base)
        options = [base]
        if message.api_key is not None:
            word = "record_type" if message.type.startswith("coordinator") else "api_key"
            options.append(f"{word}={message.api_key}")
        options.append(f'versions="{_closed(message.versions)}"')
        options.append(f'flexible="{_range(message.flexible, message.versions)}"')
        head = f"class {message.name}({', '.join(options)}):"
        self.classes[message.name] = self._class(head, message.fields, message.versions, class_name)

    def _class(
        self,
        head: str,
        fields: tuple[FieldSpec, ...],
        valid: Versions,
        class_name: Callable[[str], str],
    ) -> str:
        lines = [head]
        lines += [self._field(spec, valid, class_name) for spec in fields if spec.versions]
        if len(lines) == 1:
            lines.append('    """Carries no fields of its own."""')
        return "\n".join(lines) + "\n"

    def _field(self, spec: FieldSpec, valid: Versions, class_name: Callable[[str], str]) -> str:
        if spec.name in TAKEN:
            raise ValueError(f"a field cannot be called {spec.name}")
        element = spec.type.removeprefix("[]")
        if element in PRIMITIVES:
            function, annotation = PRIMITIVES[element]
            annotation = ENTITIES[spec.entity] if spec.entity else annotation
            self.uses |= {function, annotation}
            arguments = []
        else:
            function, annotation = "struct", class_name(element)
            arguments = [annotation]
        if spec.type.startswith("[]"):
            arguments = arguments or [function]
            function, annotation = "array", f"tuple[{annotation}, ...]"
        self.uses.add(function)
        arguments.append(f'"{_range(spec.versions, valid)}"')
        if spec.nullable:
            every = spec.nullable == spec.versions
            arguments.append(f"nullable={every or repr(_range(spec.nullable, valid))}")
        if spec.nullable or spec.type == "records":
            annotation += " | None"
        if spec.default and (default := _default(spec)) not in ("0", "False"):
            arguments.append(f"default={default}")
        if spec.tag is not None:
            arguments.append(f"tag={spec.tag}")
        if spec.ignorable:
            arguments.append("ignorable=True")
        if not spec.compact:
            arguments.append("compact=False")
        return f"    {spec.name}: {annotation} = {function}({', '.join(arguments)})"


def _structs_of(message: MessageSpec) -> Iterator[tuple[str, tuple[FieldSpec, ...]]]:
    """Give the structs of a message, each after those it uses."""
    given: set[str] = set()

    def walk(fields: tuple[FieldSpec, ...]) -> Iterator[tuple[str, tuple[FieldSpec, ...]]]:
        for spec in fields:
            name = spec.type.removeprefix("[]")
            if name in PRIMITIVES or not spec.versions or name in given:
                continue
            given.add(name)
            inner = spec.fields or message.structs[name]
            yield from walk(inner)
            yield name, inner

    return walk(message.fields)


def _default(spec: FieldSpec) -> str:
    if spec.default == "null":
        return "None"
    if spec.type == "bool":
        return str(spec.default.lower() == "true")
    if spec.type == "string":
        return json.dumps(spec.default)
    if spec.type == "float64":
        return repr(float(spec.default))
    return str(int(spec.default, 0))


def _closed(versions: Versions) -> str:
    lowest, highest = min(versions), max(versions)
    if len(versions) != highest - lowest + 1:
        raise ValueError(f"versions {sorted(versions)} have a gap: extend the language")
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def _range(versions: Versions, valid: Versions) -> str:
    """Write a range; one that reaches the newest version stays open."""
    if not versions:
        return "none"
    closed = _closed(versions)
    return f"{min(versions)}+" if max(versions) == max(valid) else closed


def module_of(message: MessageSpec) -> str:
    """Return the module that a message belongs in."""
    if message.type in ("request", "response"):
        return snake_case(re.sub("(Request|Response)$", "", message.name))
    for kind, pattern, module in MODULES:
        if re.fullmatch(kind, message.type) and re.match(pattern, message.name):
            return module
    raise ValueError(f"{message.name} is of the unknown type {message.type}")


def write_modules(specs: dict[str, MessageSpec], out: Path) -> None:
    """Write all modules and the index."""
    modules: dict[str, Module] = {}
    for message in sorted(specs.values(), key=_reading_order):
        if not message.versions:
            continue
        name = module_of(message)
        title = TITLES.get(name)
        if title is None:
            api = re.sub("(Request|Response)$", "", message.name)
            title = f"{api}, api key {message.api_key}: request and response."
        modules.setdefault(name, Module(title)).messages.append(message)
    if out.exists():
        if any(out.iterdir()) and not (out / "index.py").exists():
            raise SystemExit(f"{out} is not a package that this has written: it is left alone")
        shutil.rmtree(out)
    (out / "records").mkdir(parents=True)
    (out / "__init__.py").write_text(
        '"""Kafka\'s messages, as declarations; :mod:`dohle.protocol.apis` finds them."""\n'
    )
    (out / "records" / "__init__.py").write_text(
        '"""Messages that are stored: records of internal topics, control records, files."""\n'
    )
    for name, module in modules.items():
        path = out.joinpath(*name.split(".")).with_suffix(".py")
        path.write_text(module.render())
    (out / "index.py").write_text(render_index(modules))
    config = f"--config={Path(__file__).parents[1] / 'pyproject.toml'}"
    for command in (["check", "--fix-only", "--select=I"], ["format"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, "--quiet", config, out], check=True)


def _reading_order(message: MessageSpec) -> tuple[Any, ...]:
    key = -1 if message.api_key is None else message.api_key
    return (key, re.sub("(Key|Value)$", "", message.name), message.name)


def render_index(modules: dict[str, Module]) -> str:
    """Write the index: everything that can be known without importing the declarations."""
    keys, apis, unstable = [], [], []
    metadata: dict[str, list[str]] = {"cluster_metadata": [], "storage": []}
    families: dict[str, dict[int, dict[str, str]]] = {}
    others = []
    for name, module in modules.items():
        for spec in module.messages:
            place = f'"{name}", "{spec.name}"'
            if spec.type == "request":
                api = spec.name.removesuffix("Request")
                constant = snake_case(api).upper()
                keys.append(f"    {constant} = {spec.api_key}")
                apis.append(f"    ApiKey.{constant}: {_index_row(api, spec, module)},")
                if spec.unstable:
                    unstable.append(f"ApiKey.{constant}")
            elif spec.type == "metadata":
                metadata[name.removeprefix("records.")].append(f"    {spec.api_key}: ({place}),")
            elif spec.type.startswith("coordinator"):
                assert spec.api_key is not None
                types = families.setdefault(FAMILIES[name], {})
                types.setdefault(spec.api_key, {"": name})[spec.type] = spec.name
            elif spec.type in ("data", "header"):
                others.append(f'    "{spec.name}": "{name}",')
    return INDEX.format(
        keys="\n".join(keys),
        apis="\n".join(apis),
        unstable=", ".join(unstable),
        metadata="\n".join(metadata["cluster_metadata"]),
        storage="\n".join(metadata["storage"]),
        coordinators="\n".join(_family_rows(families)),
        others="\n".join(sorted(others)),
    )


def _index_row(api: str, spec: MessageSpec, module: Module) -> str:
    for response in module.messages:
        if (response.versions, response.flexible) != (spec.versions, spec.flexible):
            raise ValueError(f"{spec.name} and its response differ in their versions")
    ranges = [
        _closed(spec.versions),
        _range(spec.flexible, spec.versions),
        _closed(spec.release_versions) if spec.release_versions else "none",
    ]
    listeners = "".join(sorted(listener[0] for listener in spec.listeners))
    return repr((api, *ranges, listeners))


def _family_rows(families: dict[str, dict[int, dict[str, str]]]) -> Iterator[str]:
    for family, types in sorted(families.items()):
        yield f'    "{family}": {{'
        for number, names in sorted(types.items()):
            row = (names[""], names["coordinator-key"], names["coordinator-value"])
            yield f"        {number}: {row!r},"
        yield "    },"


INDEX = '''"""Which messages there are, and where, without importing any of them.

Written by tools/import_schemas.py; do not edit. Read it through :mod:`dohle.protocol.apis`.
"""

from __future__ import annotations

from enum import IntEnum


class ApiKey(IntEnum):
    """The keys of requests, by Kafka's names."""

{keys}


#: Key: name, versions, flexible versions, versions that the release itself serves, and the
#: listeners that do so, b for broker and c for controller. The module is the key in small letters.
APIS: dict[ApiKey, tuple[str, str, str, str, str]] = {{
{apis}
}}

#: Those whose latest version the release does not promise to keep.
UNSTABLE_APIS: frozenset[ApiKey] = frozenset({{{unstable}}})

#: Records of the cluster metadata log by their key: module, class.
CLUSTER_METADATA_RECORDS: dict[int, tuple[str, str]] = {{
{metadata}
}}

#: Records of the remote log metadata topic by their key: module, class.
REMOTE_LOG_METADATA_RECORDS: dict[int, tuple[str, str]] = {{
{storage}
}}

#: Records of coordinators by their type: module, class of the key, class of the value.
COORDINATOR_RECORDS: dict[str, dict[int, tuple[str, str, str]]] = {{
{coordinators}
}}

#: The modules of all other messages.
OTHERS: dict[str, str] = {{
{others}
}}
'''


def main() -> None:
    """Run the importer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="the definitions of a release")
    parser.add_argument("--older", type=Path, help="definitions with versions it has dropped")
    parser.add_argument("--out", type=Path, required=True, help="the package to write anew")
    arguments = parser.parse_args()
    specs = read_folder(arguments.folder)
    if arguments.older:
        specs = merge_folders(specs, read_folder(arguments.older))
    write_modules(specs, arguments.out)


if __name__ == "__main__":
    main()
