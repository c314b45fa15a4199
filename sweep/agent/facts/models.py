"""Model files: whether every shard is there and whole, and what the model's config says."""

from __future__ import annotations

import glob
import json
import os
import re
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional

from sweep.agent.facts import gguf, hub, safetensors

_WEIGHTS = (
    ("model.safetensors.index.json", "*.safetensors"),
    ("pytorch_model.bin.index.json", "*.bin"),
    (None, "*.gguf"),
)
"""Index, and the files without one: in the order that servers look for them."""
_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_INNER = ("text_config", "llm_config", "language_config", "transformer_layer_config")
"""Where configs of models with other inputs, and of some drafters, keep the text model's."""
_FIELDS = (
    "hidden_size", "vocab_size", "num_hidden_layers", "draft_vocab_size",
    "target_hidden_size",
)  # fmt: skip
_LAYERS = ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "target_layer_ids")
_JOINING = "fc.weight"
_LAYERS_IN = ("eagle_config", "dflash_config")
_HEADERS_S = 8.0
"""Opening hundreds of shards on a slow file system may take longer; what is left is counted."""


@dataclass
class Model:
    """One model as it lies on the node.

    `kind`: file, directory, hub (a snapshot in the hub's cache) or missing; `revision`,
    `offline` and `partial_files` are the hub's.
    """

    kind: str
    path: Optional[str] = None
    revision: Optional[str] = None
    offline: Optional[bool] = None
    partial_files: int = 0
    size_bytes: int = 0
    weights: int = 0
    """Files of weights, missing ones included."""
    largest: Optional[str] = None
    """The largest of them that is there."""
    unread: int = 0
    """Files whose header was not read for want of time, or whose format is a newer one."""
    problems: List[str] = field(default_factory=list)
    config: Dict[str, Any] = field(default_factory=dict)
    """What of the config is known, by name: `_FIELDS`, `model_type`, `architecture`, and `layers`,
    those of the target whose hidden states a drafter reads; of its weights, `inputs`, how many
    values it reads of one token."""


def inspect(
    names: Iterable[str], from_hub: bool, environment: Mapping[str, str]
) -> Dict[str, Dict[str, Any]]:
    """Return each model's facts by its name in the experiment file. With `from_hub`, a name that
    is no path is looked for in the hub's cache."""
    until_s = time.monotonic() + _HEADERS_S
    found = {name: _located(name, from_hub, environment) for name in names}
    for model in found.values():
        if model.path is not None:
            _look_into(model, model.path, until_s)
    return {name: asdict(model) for name, model in found.items()}


def _located(name: str, from_hub: bool, environment: Mapping[str, str]) -> Model:
    path = os.path.abspath(os.path.expanduser(name))
    if os.path.exists(path):
        return Model("directory" if os.path.isdir(path) else "file", path)
    if not from_hub or not hub.is_name(name):
        return Model("missing")
    offline, snapshot = hub.offline(environment), hub.find(name, environment)
    if snapshot is None:
        return Model("hub", offline=offline)
    return Model("hub", snapshot.directory, snapshot.revision, offline, snapshot.partial_files)


def _look_into(model: Model, path: str, until_s: float) -> None:
    directory = os.path.isdir(path)
    files = _weights_in(model, path) if directory else _splits(path)
    _check_weights(model, files, until_s)
    if directory:
        model.config.update(_config(model, path))
        if model.config.get("layers") and not model.problems:
            model.config["inputs"] = _inputs(files)


def _weights_in(model: Model, directory: str) -> List[str]:
    """Return the files of weights that a directory holds or that its index names."""
    for index, pattern in _WEIGHTS:
        if index is not None and os.path.exists(os.path.join(directory, index)):
            named = _named_by(os.path.join(directory, index))
            if named is None:
                model.problems.append("%s cannot be read" % index)
                return []
            return [os.path.join(directory, name) for name in named]
        found = sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))
        if found:
            return found
    patterns = ", ".join(pattern for _, pattern in _WEIGHTS)
    model.problems.append("it holds no weights (%s)" % patterns)
    return []


def _named_by(index: str) -> Optional[List[str]]:
    try:
        with open(index, encoding="utf-8") as stream:
            names = json.load(stream)["weight_map"].values()
            return sorted({os.path.basename(name) for name in names})
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _splits(path: str) -> List[str]:
    """Return the files of a model that is given by one file: GGUF is often split."""
    match = _SPLIT.fullmatch(path)
    if match is None:
        return [path]
    count = int(match[3])
    return ["%s-%05d-of-%05d.gguf" % (match[1], number + 1, count) for number in range(count)]


def _check_weights(model: Model, files: List[str], until_s: float) -> None:
    model.weights, largest_bytes = len(files), -1
    for path in files:
        name = os.path.basename(path)
        try:
            size = os.stat(path).st_size
            model.size_bytes += size
            if size > largest_bytes:
                largest_bytes, model.largest = size, os.path.realpath(path)
            if time.monotonic() > until_s:
                model.unread += 1
                continue
            fault = _fault(model, path, size)
        except FileNotFoundError:
            fault = "is missing"
        except OSError as problem:
            fault = "cannot be read: %s" % problem.strerror
        if fault is not None:
            model.problems.append("%s %s" % (name, fault))


def _fault(model: Model, path: str, size: int) -> Optional[str]:
    """Return what is wrong with one file of weights; takes the dimensions out of a GGUF."""
    if size == 0:
        return "is empty"
    if path.endswith(".safetensors"):
        return safetensors.fault(path, size)
    return _gguf_fault(model, path, size) if path.endswith(".gguf") else None


def _gguf_fault(model: Model, path: str, size: int) -> Optional[str]:
    try:
        header = gguf.read_header(path)
    except gguf.GgufError as problem:
        return "is no whole GGUF: %s" % problem
    except gguf.UnknownGgufError:
        model.unread += 1
        return None
    # Only the first of several files has them.
    model.config.update(_dimensions(header))
    if size < header.least_bytes:
        return "is cut short: %d bytes, its header says %d" % (size, header.least_bytes)
    return None


def _dimensions(header: gguf.Header) -> Dict[str, Any]:
    tokens = header.fields.get("tokenizer.ggml.tokens")
    found = {
        "model_type": header.fields.get("general.architecture"),
        "hidden_size": header.dimension("embedding_length"),
        "vocab_size": header.dimension("vocab_size") if tokens is None else tokens,
        "num_hidden_layers": header.dimension("block_count"),
    }
    return {name: value for name, value in found.items() if value is not None}


def _inputs(files: List[str]) -> Optional[int]:
    """Return the width of the matrix that joins the hidden states that an EAGLE-3 head reads."""
    for path in files:
        found = safetensors.shape(path, _JOINING) if path.endswith(".safetensors") else None
        if found is not None:
            return found[-1]
    return None


def _config(model: Model, directory: str) -> Dict[str, Any]:
    """Read config.json; empty, with a problem noted, when it cannot be."""
    try:
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as stream:
            outer = json.load(stream)
    except FileNotFoundError:
        if not (model.largest or "").endswith(".gguf"):
            model.problems.append("config.json is missing")
        return {}
    except (OSError, ValueError):
        outer = None
    if not isinstance(outer, dict):
        model.problems.append("config.json cannot be read")
        return {}
    inner = [outer[name] for name in _INNER if isinstance(outer.get(name), dict)]
    found = {name: _first([*inner, outer], name) for name in _FIELDS}
    found["model_type"] = outer.get("model_type")
    architectures = outer.get("architectures") or None
    found["architecture"] = architectures[0] if isinstance(architectures, list) else None
    places = [outer, *(outer[name] for name in _LAYERS_IN if isinstance(outer.get(name), dict))]
    layers = (_first(places, name) for name in _LAYERS)
    found["layers"] = next((value for value in layers if isinstance(value, list)), None)
    return found


def _first(places: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((place[name] for place in places if place.get(name) is not None), None)
