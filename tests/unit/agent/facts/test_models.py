"""Model files as they lie on a node: shards, headers, configs, the hub's cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf as gguf_library
import pytest
from fakes.model_files import DRAFTER, TARGET, gguf, safetensors, write_hub, write_model

from sweep.agent.facts import gguf as gguf_header
from sweep.agent.facts import models
from sweep.agent.facts.safetensors import shape

REAL_GGUF = Path(__file__).parents[4] / "experiments" / "models" / "tiny-target-q8_0.gguf"


def look(path: Path | str, *, from_hub: bool = False, **environment: str) -> dict[str, Any]:
    """The facts of one model."""
    return models.inspect([str(path)], from_hub, environment)[str(path)]


def test_a_whole_directory(tmp_path: Path) -> None:
    """Every shard of the index counts; the config gives the dimensions."""
    found = look(write_model(tmp_path / "m", TARGET, shards=3))
    shard = len(safetensors())
    assert (found["kind"], found["weights"], found["size_bytes"]) == ("directory", 3, 3 * shard)
    assert found["problems"] == []
    assert found["config"]["hidden_size"] == 64
    assert found["config"]["vocab_size"] == 1000
    assert found["config"]["num_hidden_layers"] == 8
    assert found["config"]["architecture"] == "LlamaForCausalLM"
    assert found["config"]["layers"] is None
    assert found["largest"].endswith(".safetensors")


def test_one_file_without_an_index(tmp_path: Path) -> None:
    """Small models have no index."""
    found = look(write_model(tmp_path / "m", TARGET, shards=1))
    assert (found["weights"], found["problems"]) == (1, [])


def test_missing_and_cut_shards_are_all_named(tmp_path: Path) -> None:
    """Each file of the index that is not there, and each that is shorter than its header says."""
    directory = write_model(tmp_path / "m", TARGET, shards=4)
    (directory / "model-00001-of-00004.safetensors").unlink()
    (directory / "model-00002-of-00004.safetensors").write_bytes(safetensors()[:-1])
    (directory / "model-00003-of-00004.safetensors").write_bytes(b"")
    whole = len(safetensors())
    cut = f"is cut short: {whole - 1} bytes, its header says {whole}"
    assert look(directory)["problems"] == [
        "model-00001-of-00004.safetensors is missing",
        f"model-00002-of-00004.safetensors {cut}",
        "model-00003-of-00004.safetensors is empty",
    ]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (safetensors() + b"x", "is too long"),
        (safetensors()[:30], "is cut short: its header alone is"),
        (b"abc", "is cut short: 3 bytes"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
            "is a pointer of git-lfs, not the weights",
        ),
        (b"\x50\x4b\x03\x04" * 100, "is no safetensors"),
        ((7).to_bytes(8, "little") + b"garbage", "its header cannot be read"),
        ((2).to_bytes(8, "little") + b"[]", "its header cannot be read"),
    ],
)
def test_what_is_no_whole_safetensors(tmp_path: Path, data: bytes, problem: str) -> None:
    """Each fault has its name."""
    directory = write_model(tmp_path / "m", TARGET, shards=1)
    (directory / "model.safetensors").write_bytes(data)
    (said,) = look(directory)["problems"]
    assert problem in said


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: (d / "config.json").unlink(), "config.json is missing"),
        (lambda d: (d / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda d: (d / "config.json").write_text("[]"), "config.json cannot be read"),
        (lambda d: (d / "model.safetensors.index.json").write_text("{}"), "index.json cannot be"),
    ],
)
def test_what_a_directory_lacks(tmp_path: Path, change: Any, problem: str) -> None:
    """A config or index that is missing or broken is said."""
    directory = write_model(tmp_path / "m", TARGET)
    change(directory)
    (said,) = look(directory)["problems"]
    assert problem in said


def test_a_directory_without_weights(tmp_path: Path) -> None:
    """A download of the small files only is no model."""
    directory = write_model(tmp_path / "m", TARGET, shards=1)
    (directory / "model.safetensors").unlink()
    assert "it holds no weights (*.safetensors, *.bin, *.gguf)" in look(directory)["problems"]


def test_weights_in_two_formats(tmp_path: Path) -> None:
    """Servers take the safetensors: what an index of the other format names may be missing."""
    directory = write_model(tmp_path / "m", TARGET, shards=1)
    index = {"weight_map": {"w": "pytorch_model-00001-of-00002.bin"}}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert look(directory)["problems"] == []
    (directory / "model.safetensors").unlink()
    assert look(directory)["problems"] == ["pytorch_model-00001-of-00002.bin is missing"]


def test_a_nested_config_counts_first(tmp_path: Path) -> None:
    """A model with pictures keeps its text model's dimensions inside."""
    outer = {"model_type": "kimi_k25", "hidden_size": 1, "text_config": {**TARGET}}
    config = look(write_model(tmp_path / "m", outer))["config"]
    assert (config["hidden_size"], config["num_hidden_layers"]) == (64, 8)
    assert config["model_type"] == "kimi_k25"


def test_layers_that_a_drafter_reads(tmp_path: Path) -> None:
    """Inside eagle_config or beside it."""
    assert look(write_model(tmp_path / "a", DRAFTER))["config"]["layers"] == [1, 3, 6]
    beside = {**DRAFTER, "eagle_config": {}, "eagle_aux_hidden_state_layer_ids": [2, 4, 5]}
    assert look(write_model(tmp_path / "b", beside))["config"]["layers"] == [2, 4, 5]


def test_values_of_a_token_that_a_head_takes(tmp_path: Path) -> None:
    """By the matrix that joins hidden states, under any prefix; nothing of a head without it."""
    head = write_model(tmp_path / "head", DRAFTER, shards=1)
    assert look(head)["config"]["inputs"] is None
    weights = safetensors(name="model.fc.weight", shape=[64, 192])
    (head / "model.safetensors").write_bytes(weights)
    assert look(head)["config"]["inputs"] == 192
    target = write_model(tmp_path / "target", TARGET, shards=1)
    assert "inputs" not in look(target)["config"]


@pytest.mark.parametrize("data", [b"", b"\xff" * 8 + b"{}", b"\2" + b"\0" * 7 + b"[]", b"x" * 9])
def test_a_file_that_is_none_has_no_shapes(tmp_path: Path, data: bytes) -> None:
    """Whatever length its first bytes name."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    assert shape(str(path), "fc.weight") is None


def test_a_real_gguf() -> None:
    """The dimensions of the model of the quick start."""
    found = look(REAL_GGUF)
    assert (found["kind"], found["weights"], found["problems"]) == ("file", 1, [])
    assert found["size_bytes"] == REAL_GGUF.stat().st_size
    assert found["config"] == {
        "model_type": "llama",
        "hidden_size": 192,
        "vocab_size": 2048,
        "num_hidden_layers": 4,
    }


def test_a_real_gguf_cut_anywhere_is_seen(tmp_path: Path) -> None:
    """In the last tensor, in the middle, in the header."""
    data = REAL_GGUF.read_bytes()
    for length in (len(data) - 1, len(data) // 2, 40_000, 100, 3):
        (tmp_path / "m.gguf").write_bytes(data[:length])
        (said,) = look(tmp_path / "m.gguf")["problems"]
        assert "cut short" in said or "is no whole GGUF" in said, length


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"weights", "it does not begin with GGUF"),
        (b"GGUF\x03\0\0\0" + b"\0" * 15, "its header ends too early"),
    ],
)
def test_what_is_no_gguf(tmp_path: Path, data: bytes, problem: str) -> None:
    """Said without reading gigabytes."""
    (tmp_path / "m.gguf").write_bytes(data)
    assert look(tmp_path / "m.gguf")["problems"] == [f"m.gguf is no whole GGUF: {problem}"]


@pytest.mark.parametrize("start", [b"GGUF\x09\0\0\0", b"GGUF\x03\0\0\0" + b"\xff" * 16])
def test_a_gguf_of_another_kind_is_left_to_the_server(tmp_path: Path, start: bytes) -> None:
    """What this reader does not know need not be wrong."""
    (tmp_path / "m.gguf").write_bytes(start)
    found = look(tmp_path / "m.gguf")
    assert (found["problems"], found["unread"]) == ([], 1)


def test_every_part_of_a_split_gguf(tmp_path: Path) -> None:
    """The file names the first part; the others lie beside it."""
    for number in (1, 3):
        (tmp_path / f"m-{number:05d}-of-00003.gguf").write_bytes(gguf())
    found = look(tmp_path / "m-00001-of-00003.gguf")
    assert found["weights"] == 3
    assert found["problems"] == ["m-00002-of-00003.gguf is missing"]


def test_block_sizes_are_ggmls() -> None:
    """Against the library of the format's makers."""
    theirs = {int(kind): sizes for kind, sizes in gguf_library.GGML_QUANT_SIZES.items()}
    assert {kind: theirs[kind] for kind in gguf_header.BLOCKS} == gguf_header.BLOCKS


def test_a_name_of_the_hub(tmp_path: Path) -> None:
    """Found in the cache by the library's variables, its links followed."""
    write_hub(tmp_path / "hub", "org/model", TARGET)
    found = look("org/model", from_hub=True, HF_HUB_CACHE=str(tmp_path / "hub"))
    assert (found["kind"], found["revision"], found["problems"]) == ("hub", "abc123", [])
    assert found["size_bytes"] == 2 * len(safetensors())
    assert (found["offline"], found["partial_files"]) == (False, 0)
    assert found["config"]["hidden_size"] == 64
    assert look("org/model", from_hub=True, HF_HOME=str(tmp_path))["revision"] == "abc123"


def test_a_download_that_did_not_end(tmp_path: Path) -> None:
    """A link without its blob is a missing shard; what is half there is counted."""
    snapshot = write_hub(tmp_path / "hub", "org/model", TARGET)
    shard = snapshot / "model-00002-of-00002.safetensors"
    shard.resolve().rename(shard.resolve().with_suffix(".incomplete"))
    found = look("org/model", from_hub=True, HF_HOME=str(tmp_path))
    assert found["partial_files"] == 1
    assert found["problems"] == ["model-00002-of-00002.safetensors is missing"]


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_a_name_that_is_not_in_the_cache(tmp_path: Path, name: str) -> None:
    """Whether the server would download it is said beside it."""
    home = {"HF_HOME": str(tmp_path)}
    assert look("org/model", from_hub=True, **home, **{name: "true"})["offline"] is True
    found = look("org/model", from_hub=True, **home, **{name: "0"})
    assert (found["kind"], found["offline"], found["path"]) == ("hub", False, None)


def test_what_is_nowhere(tmp_path: Path) -> None:
    """A path is never a name of the hub, and without the hub no name is."""
    for name, from_hub in ((f"{tmp_path}/none", True), ("./org/model", True), ("org/model", False)):
        assert look(name, from_hub=from_hub)["kind"] == "missing"


def test_without_main_the_newest_snapshot_counts(tmp_path: Path) -> None:
    """As after a download by commit."""
    snapshot = write_hub(tmp_path / "hub", "org/model", TARGET, revision="feed")
    (snapshot.parents[1] / "refs" / "main").unlink()
    assert look("org/model", from_hub=True, HF_HOME=str(tmp_path))["revision"] == "feed"


def test_an_index_names_files_of_its_directory_only(tmp_path: Path) -> None:
    """A path in it leads nowhere else."""
    directory = write_model(tmp_path / "m", TARGET)
    index = {"weight_map": {"w": "../../etc/passwd"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    assert look(directory)["problems"] == ["passwd is missing"]
