"""Uploads that reach for the owner's files, or for more memory than they bring."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import safetensors.torch
import torch
from sqlalchemy import text

from outrider.assertions import Batch
from outrider.dataops.confinement import clean_environment, landlock_version, libraries
from outrider.dataops.state.database import write
from outrider.dataops.uploads import check_process, checks
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.settings.model_sections import ShadowSettings
from outrider.monitor.trainer.weights_size import weight_bytes
from outrider.monitor.views.outside import versions as version_uploads
from tests.dataops.model_kinds.folders import NEEDS
from tests.forked import LIGHT, forks
from tests.requirements import require_package

from .test_uploads import World

onnx: Any = require_package("onnx", "pip install outrider[onnx]")
require_package("onnxruntime", "pip install outrider[onnx]")
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
KEY_BYTES = "outrider-data/key"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("hostile"))
    (made.folder / "key").write_text("or_SECRETSECRETSECRET")
    yield made
    made.process.close()
    made.engine.dispose()


@pytest.fixture(autouse=True)
def _nothing_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world.folder.parent)  # where a service is usually started
    with write(world.engine) as connection:
        connection.execute(text("DELETE FROM version_upload WHERE status = 'open'"))
        connection.execute(text("UPDATE job SET status = 'failed' WHERE finished_us IS NULL"))


@pytest.fixture(autouse=True)
def _forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes have their imports; one is started as users start it, and imports what it needs confined."""
    if request.function is test_model_folder_is_opened_in_a_process_before_it_is_taken:
        yield
        return
    with forks(modules=(*LIGHT, "outrider.dataops.uploads.check_process", "onnxruntime", *NEEDS)):
        yield


def key_tensor(location: str = KEY_BYTES) -> Any:
    """Four bytes of the owner's key."""
    tensor = onnx.TensorProto(name="k", data_type=onnx.TensorProto.UINT8, dims=[4])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for name, value in (("location", location), ("offset", "3"), ("length", "4")):
        tensor.external_data.add(key=name, value=value)
    return tensor


def graph(nodes: list[Any], **more: Any) -> Any:
    """Graph whose answer has the shape ``s``, which the nodes make."""
    made = onnx.helper
    shaped = made.make_node("ConstantOfShape", ["s"], ["y"])
    x, y = made.make_tensor_value_info("x", FLOAT, ["n", 2]), made.make_tensor_value_info("y", FLOAT, None)
    return made.make_graph([*nodes, shaped], "g", [x], [y], **more)


def model_of(content: Any, **more: Any) -> bytes:
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("own", 1)]
    made = onnx.helper.make_model(content, opset_imports=opsets, ir_version=9, **more)
    return bytes(made.SerializeToString())


def cast(name: str = "k") -> Any:
    return onnx.helper.make_node("Cast", [name], ["s"], to=INT64)


def constant(tensor: Any) -> Any:
    return onnx.helper.make_node("Constant", [], ["k"], value=tensor)


def in_an_initializer(tensor: Any) -> bytes:
    return model_of(graph([cast()], initializer=[tensor]))


def in_an_attribute(tensor: Any) -> bytes:
    return model_of(graph([constant(tensor), cast()]))


def in_a_list_of_tensors(tensor: Any) -> bytes:
    node = constant(onnx.numpy_helper.from_array(torch.ones(1).numpy()))
    node.attribute.add(name="more", type=onnx.AttributeProto.TENSORS).tensors.append(tensor)
    return model_of(graph([node, cast()]))


def in_a_sparse_tensor(tensor: Any) -> bytes:
    indices = onnx.helper.make_tensor("i", INT64, [4], [0, 1, 2, 3])
    sparse = onnx.helper.make_sparse_tensor(tensor, indices, [4])
    return model_of(graph([cast()], sparse_initializer=[sparse]))


def in_a_branch(tensor: Any) -> bytes:
    out = onnx.helper.make_tensor_value_info("k", onnx.TensorProto.UINT8, [4])
    branch = onnx.helper.make_graph([constant(tensor)], "b", [], [out])
    condition = onnx.helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
    node = onnx.helper.make_node("If", ["c"], ["k"], then_branch=branch, else_branch=branch)
    return model_of(graph([node, cast()], initializer=[condition]))


def in_a_function(tensor: Any) -> bytes:
    opset = [onnx.helper.make_opsetid("", 17)]
    function = onnx.helper.make_function("own", "F", [], ["k"], [constant(tensor)], opset)
    node = onnx.helper.make_node("F", [], ["k"], domain="own")
    return model_of(graph([node, cast()]), functions=[function])


def in_its_training(tensor: Any) -> bytes:
    made = onnx.ModelProto()
    made.ParseFromString(
        model_of(graph([constant(onnx.numpy_helper.from_array(torch.ones(1).numpy())), cast()]))
    )
    made.training_info.add().initialization.initializer.append(tensor)
    return bytes(made.SerializeToString())


HOLDERS = [
    in_an_initializer, in_an_attribute, in_a_list_of_tensors, in_a_sparse_tensor, in_a_branch, in_a_function,
    in_its_training,
]  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_onnx_with_data_elsewhere_is_refused_by_a_job_token_too(world: World, holder: Any) -> None:
    _, token = world.waiting_job()
    refused = world.send({"net.onnx": holder(key_tensor())}, "onnx", key=token)
    assert refused.status_code == 422
    assert "tensor 'k' stands in another file" in refused.json()["detail"]
    assert_no_secret(refused)


@pytest.mark.parametrize("location", ["key", "../key", "net.onnx", "/etc/passwd", ""])
def test_onnx_with_data_elsewhere_is_refused_wherever_it_leads(world: World, location: str) -> None:
    refused = world.send({"net.onnx": in_an_initializer(key_tensor(location))}, "onnx")
    assert (refused.status_code, "another file" in refused.json()["detail"]) == (422, True)


def test_onnx_with_fields_that_onnx_does_not_know_is_refused(world: World) -> None:
    # Field 150 of the model, in which a newer runtime may look for a tensor.
    content = model_of(graph([cast()], initializer=[small("k", 4)])) + b"\xb2\x09\x02\x08\x01"
    refused = world.send({"net.onnx": content}, "onnx")
    assert (refused.status_code, "does not know" in refused.json()["detail"]) == (422, True)


def test_file_in_the_format_of_a_runtime_is_refused(world: World) -> None:
    refused = world.send({"net.onnx": b"\x00\x00\x00\x00ORTM" + bytes(100)}, "onnx")
    assert (refused.status_code, "an ONNX file expected" in refused.json()["detail"]) == (422, True)


def test_refusals_quote_no_shape_that_a_model_computes(world: World) -> None:
    content = model_of(graph([cast()], initializer=[small("k", 97, 89)]))
    refused = world.send({"net.onnx": content}, "onnx")
    assert refused.status_code == 422
    assert "it declares y float" in refused.json()["detail"]
    assert "97" not in refused.text
    assert "89" not in refused.text


def test_onnx_that_asks_for_memory_by_its_rows_is_refused(world: World) -> None:
    """Zeros would ask for nothing."""
    made = onnx.helper
    big = made.make_tensor("big", FLOAT, [], [3e9])
    zero = made.make_tensor("zero", FLOAT, [], [0.0])
    nodes = [
        made.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
        made.make_node("Equal", ["m", "zero"], ["none"]),
        made.make_node("Not", ["none"], ["any"]), made.make_node("Cast", ["any"], ["f"], to=FLOAT),
        made.make_node("Mul", ["f", "big"], ["size"]), made.make_node("Cast", ["size"], ["n"], to=INT64),
        made.make_node("Reshape", ["n", "one"], ["s"]),
    ]  # fmt: skip
    one = made.make_tensor("one", INT64, [1], [1])
    refused = world.send({"net.onnx": model_of(graph(nodes, initializer=[big, zero, one]))}, "onnx")
    assert refused.status_code == 422, refused.text
    assert "fails on 2 drawn rows" in refused.json()["detail"] or "memory" in refused.json()["detail"]


def small(name: str, *values: int) -> Any:
    return onnx.helper.make_tensor(name, onnx.TensorProto.UINT8, [len(values)], list(values))


def folder_files(folder: Path) -> dict[str, bytes]:
    """A tiny model folder."""
    transformers = require_package("transformers", "pip install outrider[hf]")
    config = transformers.BertConfig(
        vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ntext\n.\n")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return folder_files(tmp_path_factory.mktemp("folder"))


def with_config(files: dict[str, bytes], **more: Any) -> dict[str, bytes]:
    return files | {"config.json": json.dumps(json.loads(files["config.json"]) | more).encode()}


def send_folder(world: World, files: dict[str, bytes]) -> httpx.Response:
    return world.send(files, "hf", inputs=["text"], classes=["no", "yes"])


def test_model_folder_is_opened_in_a_process_before_it_is_taken(
    world: World, files: dict[str, bytes]
) -> None:
    assert send_folder(world, files).status_code == 201


def costly(how: str) -> bytes:
    """File whose work or memory grows with the largest number of a row."""
    make, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    zero = onnx.helper.make_tensor("zero", FLOAT, [], [0.0])
    nodes = [make("Abs", ["x"], ["a"]), make("ReduceMax", ["a"], ["m"], keepdims=0), cast("m")]
    if how == "memory":
        shape = onnx.helper.make_tensor("shape", INT64, [1], [1])
        nodes += [constant(shape), make("Reshape", ["s", "k"], ["r"]), make("ConstantOfShape", ["r"], ["c"])]
        nodes += [make("ReduceSum", ["c"], ["z"], keepdims=0)]
    else:
        steps = [make("Identity", ["was"], ["is"]), make("Add", ["sum", "sum"], ["next"])]
        is_on, sums = onnx.TensorProto.BOOL, [info("next", FLOAT, [])]
        takes = [info("i", INT64, []), info("was", is_on, []), info("sum", FLOAT, [])]
        body = onnx.helper.make_graph(steps, "b", takes, [info("is", is_on, []), *sums])
        nodes += [
            constant(onnx.helper.make_tensor("on", is_on, [], [True])),
            make("Loop", ["s", "k", "zero"], ["z"], body=body),
        ]
    nodes += [make("Add", ["x", "z"], ["y"])]
    x, y = info("x", FLOAT, ["n", 2]), info("y", FLOAT, ["n", 2])
    return model_of(onnx.helper.make_graph(nodes, "g", [x], [y], initializer=[zero]))


@pytest.mark.parametrize(
    ("how", "number", "why"), [("memory", 2e9, "Failed to allocate"), ("work", 1e15, "no answer within 1 s")]
)
def test_upload_that_waits_for_a_row_of_the_gate_fails_there_alone(
    world: World, how: str, number: float, why: str
) -> None:
    sent = world.send({"net.onnx": costly(how)}, "onnx")
    assert sent.status_code == 201, sent.text
    own = world.settings.models["m"]
    own = own.model_copy(update={"shadow": ShadowSettings(deadline_s=1.0, memory_mb=1000)})
    settings = world.settings.model_copy(update={"models": {**world.settings.models, "m": own}})
    with world.engine.connect() as connection:
        champion, upload = version_predictors(settings, connection, "m", "1", sent.json()["version"])
    waited_for = Batch.from_columns({"inputs.a": np.array([number]), "inputs.b": np.zeros(1)}, model="m")
    with pytest.raises(RuntimeError, match=why):
        upload(waited_for)
    assert len(champion(waited_for)["label"]) == 1


def test_bytes_of_an_uploaded_folder_are_those_that_a_confined_engine_holds(
    world: World, files: dict[str, bytes]
) -> None:
    version = send_folder(world, files).json()["version"]
    (held,) = weight_bytes(world.context, "m", (version,))
    weights = sum(tensor.nbytes for tensor in safetensors.torch.load(files["model.safetensors"]).values())
    assert held is not None
    assert weights <= held < weights + 10_000  # with buffers


def test_model_folder_with_more_weights_by_its_configuration_is_refused(
    world: World, files: dict[str, bytes]
) -> None:
    refused = send_folder(world, with_config(files, vocab_size=40_000_000))
    assert refused.status_code == 422
    told = refused.json()
    assert told["tensor"] == "bert.embeddings.word_embeddings.weight"
    assert (told["expected"], told["got"]) == ([40_000_000, 8], [8, 8])


def test_model_folder_with_other_layers_than_its_weights_is_refused(
    world: World, files: dict[str, bytes]
) -> None:
    refused = send_folder(world, with_config(files, num_hidden_layers=2))
    assert (refused.status_code, "its weights lack" in refused.json()["detail"]) == (422, True)


def test_model_folder_that_fills_memory_beyond_its_weights_is_refused(
    world: World, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = send_folder(world, with_config(files, max_position_embeddings=2**40))
    assert refused.status_code == 422
    monkeypatch.setattr(check_process, "TIMEOUT_S", 6.0)
    assert send_folder(world, with_config(files, num_hidden_layers=10**9)).status_code == 422


@pytest.mark.parametrize("member", [
    {"vocab": KEY_BYTES}, {"merges": "x"}, {"init_inputs": [KEY_BYTES]}, {"extra": {"deep": ["/etc/passwd"]}},
    {"fast_tokenizer_files": ["../../tokenizer.4.0.json"]}, {"normalizer_file": "a/b"},
    {"backbone": "local-dir:/x"}, {"x": "a/../../key"},
])  # fmt: skip
def test_tokenizer_that_names_a_file_elsewhere_is_refused(
    world: World, files: dict[str, bytes], member: dict[str, Any]
) -> None:
    told = json.dumps({"tokenizer_class": "BertTokenizer", **member}).encode()
    refused = send_folder(world, files | {"tokenizer_config.json": told})
    assert refused.status_code == 422
    assert "tokenizer_config.json" in refused.json()["detail"]
    assert_no_secret(refused)


def test_map_of_a_tokenizer_that_names_a_file_elsewhere_is_refused(
    world: World, files: dict[str, bytes]
) -> None:
    told = json.dumps({"decompose_map": str(world.folder / "key"), "merge_map": {}}).encode()
    refused = send_folder(world, files | {"byte_maps.json": told})
    assert (refused.status_code, "byte_maps.json: decompose_map" in refused.json()["detail"]) == (422, True)


def assert_no_secret(answer: httpx.Response) -> None:
    for secret in ("SECR", "[83", "69, 67"):
        assert secret not in answer.text


def test_upload_is_checked_once_at_a_time(world: World, files: dict[str, bytes]) -> None:
    begun = world.begin(files, "hf", inputs=["text"], classes=["no", "yes"]).json()
    for file in begun["files"]:
        assert world.put(file["url"], files[file["name"]]).status_code == 200
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda _: world.ask("POST", begun["complete"], world.owner, json={}), range(6))
        )
    assert {answer.text for answer in answers if answer.status_code != 429} == {
        next(answer.text for answer in answers if answer.status_code == 201)
    }
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 429)


# ---- the process itself --------------------------------------------------------------------------------

CODE = """
import os, sys
from pathlib import Path
from outrider.dataops.confinement import bound_memory, confine
bound_memory(2_000_000_000)
held = confine([Path(sys.argv[1])])
found = []
for path in sys.argv[1:]:
    try:
        Path(path).read_bytes()
    except OSError:
        continue
    found.append(path)
import numpy, onnxruntime
print(held, *found)
"""


@pytest.mark.skipif(not landlock_version(), reason="this kernel has no Landlock")
def test_confined_process_reads_its_file_and_no_key(tmp_path: Path, world: World) -> None:
    own, neighbour = tmp_path / "own", tmp_path / "neighbour"
    own.write_text("x")
    neighbour.write_text("x")
    others = [
        neighbour,
        world.folder / "key",
        world.settings.base / "outrider.toml",
        f"/proc/{os.getpid()}/environ",
    ]
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(own), *map(str, others)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", str(own)]


@pytest.mark.parametrize(
    "place", ["/usr/src/app", "/usr/local/app", "/app", "/opt/app", "/srv/app", "/var/lib/a"]
)
def test_no_folder_where_projects_lie_is_readable_to_confined_processes(place: str) -> None:
    readable = {folder.resolve() for folder in libraries()}
    assert readable.isdisjoint([Path(place), *Path(place).parents])


def test_environment_of_a_check_holds_no_key() -> None:
    given = {
        "OUTRIDER_KEY": "a", "OUTRIDER_MODEL_KEY": "b", "AWS_SECRET_ACCESS_KEY": "c", "PATH": "/bin",
        "OUTRIDER_SERVER__PORT": "1", "HF_TOKEN": "d", "OMP_NUM_THREADS": "1", "LC_ALL": "C",
    }  # fmt: skip
    assert sorted(clean_environment(given)) == ["LC_ALL", "OMP_NUM_THREADS", "PATH", "PYTHONUSERBASE"]


def test_upload_that_begins_during_a_check_takes_no_file_from_it(
    world: World, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = checks.checked

    def meanwhile(*given: Any) -> Any:
        assert world.begin({"net.safetensors": b"x"}).status_code == 201
        return whole(*given)

    monkeypatch.setattr(version_uploads, "checked", meanwhile)
    done = send_folder(world, files)
    assert done.status_code == 201, done.text
