"""Read a YAML file as plain data together with the line of every key and item."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from testbed.spec.fields import Place


@dataclass
class Document:
    """Plain data, where each part of it stands, and what is wrong with the YAML itself."""

    data: Any = None
    lines: dict[Place, int] = field(default_factory=lambda: {(): 1})
    faults: list[tuple[int, Place, str]] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """Return the line of a place, or of the nearest mapping around it if it is not in the file."""
        while place not in self.lines:
            place = place[:-1]
        return self.lines[place]


def read(path: Path) -> Document:
    """Read one YAML document; whatever is wrong with it is in `faults`, nothing is raised."""
    document = Document()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        document.faults.append((0, (), f"cannot be read: {(error.strerror or str(error)).lower()}"))
        return document
    except UnicodeDecodeError:
        document.faults.append((0, (), "cannot be read: it is not UTF-8 text"))
        return document
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            document.faults.append((1, (), "the file is empty; an experiment needs at least name, backend, topology, workload and schemes"))
            return document
        document.lines[()] = root.start_mark.line + 1
        _find_duplicates(root, (), document, set())
        document.data = _plain(loader, root, (), document, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = " ".join(part for part in (error.context, error.problem) if part)
        document.faults.append((mark.line + 1 if mark else 1, (), f"not valid YAML: {why}"))
    except RecursionError:
        document.faults.append((1, (), "not valid YAML: nested too deeply"))
    except (yaml.YAMLError, ValueError) as error:  # a stray control character, or a date that is none
        document.faults.append((1, (), f"not valid YAML: {str(error).splitlines()[0]}"))
    else:
        if not isinstance(document.data, dict) and not document.faults:
            document.faults.append((document.lines[()], (), "an experiment must be a mapping of `key: value` lines"))
    return document


def _find_duplicates(node: yaml.Node, place: Place, document: Document, visited: set[int]) -> None:
    """Note keys given twice, before merge keys (<<) are unfolded: a mapping may override what it merges."""
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for i, item in enumerate(node.value):
            _find_duplicates(item, (*place, i), document, visited)
    elif isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                document.faults.append((line, place, "a key must be plain text"))
                continue
            if key.value in first:
                document.faults.append((line, (*place, key.value), f"given twice; the first is on line {first[key.value]}"))
            first.setdefault(key.value, line)
            _find_duplicates(value, (*place, key.value), document, visited)


def _plain(loader: yaml.SafeLoader, node: yaml.Node, place: Place, document: Document, above: tuple[yaml.Node, ...]) -> Any:
    """Turn a node into plain data with text keys, noting the line of each part."""
    if node in above:
        document.faults.append((node.start_mark.line + 1, place, "refers to itself"))
        return None
    above = (*above, node)
    if isinstance(node, yaml.SequenceNode):
        items = []
        for i, item in enumerate(node.value):
            document.lines[(*place, i)] = item.start_mark.line + 1
            items.append(_plain(loader, item, (*place, i), document, above))
        return items
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    loader.flatten_mapping(node)
    data = {}
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            document.lines[(*place, key.value)] = key.start_mark.line + 1
            data[key.value] = _plain(loader, value, (*place, key.value), document, above)
    return data
