"""Exports of dataset versions, read back by what reads such folders."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml  # type: ignore[import-untyped]  # no stubs
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from outrider.assertions import Batch
from outrider.cli import app
from outrider.commands import export_formats
from outrider.commands.export_formats import FORMATS, ExportColumns, Part, Written, safe_name
from outrider.errors import ConfigError, NotFound, OutriderError

from .test_data_commands import project, run, table

__all__ = ["project"]


def part(name: str, batch: Batch, *, step: int = 2) -> Part:
    rows = batch.to_arrow()

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows.num_rows, step):
            yield rows.slice(start, step)

    return Part(name, rows.schema, rows.num_rows, batches)


def columns(prefix: str, count: int, **more: Any) -> Batch:
    named = {"id": [f"{prefix}{row}" for row in range(count)]} | {
        name.replace("__", "."): values for name, values in more.items()
    }
    return Batch.from_columns(named, model="m")


def write(form: str, folder: Path, *parts: Part, **choice: str) -> Written:
    folder.mkdir(exist_ok=True)
    return FORMATS[form](parts, folder, ExportColumns(**choice))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---- formats ---------------------------------------------------------------------------------------------


def test_parquet_keeps_types_rows_and_parts(tmp_path: Path) -> None:
    train = columns("t", 5, inputs__x=np.arange(20.0).reshape(5, 2, 2), label__y=[0, 1, 0, 1, None])
    write("parquet", tmp_path, part("train", train), part("held_out", train.take([0])))
    assert Batch.from_arrow(pq.read_table(tmp_path / "train.parquet")) == train
    assert pq.read_table(tmp_path / "held_out.parquet").num_rows == 1


def test_hf_shards_hold_every_row_once_and_tensors_as_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_formats, "SHARD_ROWS", 3)
    values = np.arange(42, dtype=np.float32).reshape(7, 2, 3)
    train = columns("t", 7, inputs__x=values, label__y=[str(row) for row in range(7)])
    write("hf", tmp_path, part("train", train), part("held_out", train.take([1])))
    names = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert names == ["held_out-00000-of-00001.parquet"] + [
        f"train-0000{n}-of-00003.parquet" for n in range(3)
    ]
    tables = [pq.read_table(tmp_path / "data" / name) for name in names[1:]]
    assert [each.num_rows for each in tables] == [3, 3, 1]
    whole = pa.concat_tables(tables)
    assert whole.schema.field("inputs.x").type == pa.list_(pa.list_(pa.float32()))
    assert whole.column("inputs.x").to_pylist() == values.tolist()
    assert whole.column("id").to_pylist() == train.keys.tolist()


def test_hf_keeps_absent_tensors_absent(tmp_path: Path) -> None:
    batch = columns("t", 2, inputs__x=[[[1.0, 2.0], [3.0, 4.0]], None])
    write("hf", tmp_path, part("train", batch))
    found = pq.read_table(tmp_path / "data" / "train-00000-of-00001.parquet")
    assert found.column("inputs.x").to_pylist() == [[[1.0, 2.0], [3.0, 4.0]], None]


def test_images_lie_by_part_and_class_in_one_scale(tmp_path: Path) -> None:
    pixels = np.zeros((3, 8, 8), dtype=np.float32)
    pixels[1], pixels[2] = 8.0, 16.0
    batch = columns("p", 3, inputs__image=pixels, label__kind=["cat", "dog", "cat"])
    written = write("images", tmp_path, part("train", batch), part("held_out", batch.take([1])))
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.png"))
    assert found == ["held_out/dog/p1.png", "train/cat/p0.png", "train/cat/p2.png", "train/dog/p1.png"]
    assert np.asarray(Image.open(tmp_path / "train/dog/p1.png")).tolist() == [[128] * 8] * 8
    assert np.asarray(Image.open(tmp_path / "held_out/dog/p1.png"))[0, 0] == 128, "as in the other part"
    assert written.rows == {"train": 3, "held_out": 1}
    assert (written.facts["black"], written.facts["white"]) == (0.0, 16.0)


@pytest.mark.parametrize("shape", [(8, 6), (3, 8, 6), (8, 6, 3), (1, 8, 6), (8, 6, 4)])
def test_pixels_come_back_as_they_were(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (2, *shape)).astype(np.uint8)
    pixels[0].flat[0] = 255
    batch = columns("p", 2, inputs__image=pixels, label__kind=["a", "b"])
    write("images", tmp_path, part("train", batch))
    expected = pixels[1].transpose(1, 2, 0) if shape[0] in (1, 3) else pixels[1]
    found = np.asarray(Image.open(tmp_path / "train" / "b" / "p1.png"))
    assert found.tolist() == np.squeeze(expected).tolist()


def test_class_names_and_ids_cannot_leave_the_folder(tmp_path: Path) -> None:
    odd = ["../x", "/etc/passwd", "..", ".", "", "a/b", "\0", "x" * 300, "con\n", "%2E"]
    ids = [f"../../{row}/." for row in range(len(odd))]
    pixels = np.random.default_rng(2).random((len(odd), 8, 8))
    batch = Batch.from_columns({"id": ids, "inputs.image": pixels, "label.kind": odd}, model="m")
    inside = tmp_path / "deep" / "er"
    inside.mkdir(parents=True)
    written = write("images", inside, part("train", batch))
    found = list(tmp_path.rglob("*.png"))
    assert len(found) == len(odd) == written.rows["train"]
    assert {path.parent.parent for path in found} == {inside / "train"}
    assert sorted(written.facts["classes"].values()) == sorted(odd), (
        "the note says which folder is which class"
    )
    assert all((inside / "train" / name).is_dir() for name in written.facts["classes"])


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=12), unique=True, max_size=20))
def test_safe_names_are_single_different_and_plain(texts: list[str]) -> None:
    names = [safe_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    for name in names:
        assert name == Path(name).name
        assert name.isascii()
        assert name.isprintable()
        assert name not in ("", ".", "..")


def test_rows_without_label_or_picture_are_counted_not_lost(tmp_path: Path) -> None:
    batch = columns(
        "p",
        3,
        inputs__image=[np.ones((8, 8)).tolist(), None, np.ones((8, 8)).tolist()],
        label__y=[1, 1, None],
    )
    written = write("images", tmp_path, part("train", batch))
    assert written.rows == {"train": 1}
    assert dict(written.left_out) == {"no inputs.image": 1, "no label.y": 1}


TALK = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Capital of Norway?"}]


def chats() -> Batch:
    return columns(
        "c",
        3,
        inputs__messages=[
            TALK,
            [{"role": "user", "content": "2 + 2?"}],
            [{"role": "user", "content": "Hé?"}],
        ],
        outputs__text=["Bergen", "4", "ja"],
        label__text=["Oslo", "4", None],
    )


def test_chats_are_the_question_with_the_labelled_answer(tmp_path: Path) -> None:
    written = write("chat", tmp_path, part("train", chats()))
    assert lines(tmp_path / "train.jsonl") == [
        {"messages": [*TALK, {"role": "assistant", "content": "Oslo"}]},
        {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]},
    ]
    assert dict(written.left_out) == {"no label.text": 1}


def test_preferences_are_the_corrected_before_the_models_answer(tmp_path: Path) -> None:
    written = write("preferences", tmp_path, part("train", chats()))
    assert lines(tmp_path / "train.jsonl") == [
        {
            "prompt": TALK,
            "chosen": [{"role": "assistant", "content": "Oslo"}],
            "rejected": [{"role": "assistant", "content": "Bergen"}],
        }
    ]
    assert dict(written.left_out) == {"the label is the model's answer": 1, "no label.text": 1}
    assert written.facts == {"prompt": "inputs.messages", "label": "label.text", "answer": "outputs.text"}


def test_texts_and_conversations_in_json_are_understood(tmp_path: Path) -> None:
    batch = columns(
        "c", 2, inputs__q=[json.dumps(TALK), "[not json"], outputs__a=["x", "y"], label__right=["Oslo", "z"]
    )
    write("preferences", tmp_path, part("train", batch))
    first, second = lines(tmp_path / "train.jsonl")
    assert first["prompt"] == TALK
    assert second == {"prompt": "[not json", "chosen": "z", "rejected": "y"}


def test_a_column_that_must_be_chosen_is_named_with_its_candidates(tmp_path: Path) -> None:
    batch = columns("c", 1, inputs__a=["x"], inputs__b=["y"], label__l=["z"])
    with pytest.raises(
        ConfigError, match=r"--prompt: which column is the text input\? Candidates: inputs\.a, inputs\.b"
    ):
        write("chat", tmp_path, part("train", batch))
    write("chat", tmp_path, part("train", batch), prompt="b")
    assert lines(tmp_path / "train.jsonl")[0]["messages"][0]["content"] == "y"
    with pytest.raises(ConfigError, match="--prompt c: a column of the version expected"):
        write("chat", tmp_path, part("train", batch), prompt="c")
    with pytest.raises(ConfigError, match="--image: which column is the image"):
        write("images", tmp_path, part("train", batch))
    with pytest.raises(ConfigError, match=r"--answer: which column is the model's answer\?"):
        write("preferences", tmp_path, part("train", batch), prompt="a")


# ---- the command -----------------------------------------------------------------------------------------


def test_a_version_is_exported_whole_or_not_at_all(project: Path) -> None:
    pq.write_table(table([0, 1, 1]), project / "train.parquet")
    run("dataset", "import", "train", "train.parquet", "--model", "m")
    found = run("dataset", "export", "train", "--to", "out/hf", "--format", "hf")
    assert found["rows"] == {"train": 3}
    assert (found["dataset"], found["left_out"]) == ("train@1", {})
    card = (project / "out/hf/README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "data/train-*.parquet"}]
    assert json.loads((project / "out/hf/export.json").read_text())["digest"] == found["digest"]
    with pytest.raises(ConfigError, match="out/hf exists already"):
        run("dataset", "export", "train", "--to", "out/hf")
    run("dataset", "export", "train", "--to", "out/hf", "--force")
    assert sorted(path.name for path in (project / "out/hf").iterdir()) == ["export.json", "train.parquet"]
    assert pq.read_table(project / "out/hf/train.parquet").column("inputs.x").to_pylist() == [0.0, 1.0, 2.0]
    with pytest.raises(OutriderError, match="--image"):
        run("dataset", "export", "train", "--to", "out/hf", "--format", "images", "--force")
    assert (project / "out/hf/train.parquet").is_file(), "the earlier export stands where the new one fails"
    assert [path.name for path in (project / "out").iterdir()] == ["hf"], "nothing half-made is left"


def test_only_an_export_is_replaced_and_what_is_not_there_is_not_exported(project: Path) -> None:
    pq.write_table(table([0, 1]), project / "train.parquet")
    run("dataset", "import", "train", "train.parquet", "--model", "m")
    (project / "mine").mkdir()
    (project / "mine" / "work.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is no export"):
        run("dataset", "export", "train", "--to", "mine", "--force")
    assert (project / "mine" / "work.txt").read_text() == "mine"
    with pytest.raises(ConfigError, match="train@1 has no held-out row to export"):
        run("dataset", "export", "train", "--to", "out", "--part", "held_out")
    with pytest.raises(NotFound):
        run("dataset", "export", "nothing", "--to", "out")
    assert not (project / "out").exists()


def test_pictures_of_a_service_come_by_class(project: Path) -> None:
    pixels = np.random.default_rng(3).random((4, 8, 8))
    np.savez(project / "p.npz", id=np.array(list("abcd")), x=pixels, label=np.array([0, 1, 1, 0]))
    run("dataset", "import", "pictures", "p.npz", "--model", "m")
    run("dataset", "export", "pictures@1", "--to", "out", "--format", "images")
    found = sorted(str(path.relative_to(project / "out")) for path in (project / "out").rglob("*.png"))
    assert found == ["train/0/a.png", "train/0/d.png", "train/1/b.png", "train/1/c.png"]


# ---- leaks by command ------------------------------------------------------------------------------------


def test_leaks_between_two_datasets_end_with_1_and_are_shown(project: Path) -> None:
    values = np.random.default_rng(4).normal(0, 1, 60)

    def hand_in(name: str, rows: slice) -> None:
        given = pa.table(
            {
                "id": [f"{name}{row}" for row in range(60)[rows]],
                "x": values[rows],
                "label": [0, 1] * (len(values[rows]) // 2),
            }
        )
        pq.write_table(given, project / "t.parquet")
        run("dataset", "import", name, "t.parquet", "--model", "m")

    hand_in("final", slice(0, 20))
    hand_in("apart", slice(20, 40))
    hand_in("both", slice(10, 50))
    assert [leak for leak in run("dataset", "leaks", "final", "apart")["leaks"] if not leak["usual"]] == []
    leak = run("dataset", "leaks", "both@1", "final", code=1)["leaks"][0]
    assert (leak["kind"], leak["rows"], leak["between"]) == ("row", 10, ["both@1", "final@1"])
    assert ["both10", "final10"] in leak["pairs"]
    shown = CliRunner().invoke(app, ["dataset", "leaks", "both", "final"])
    assert shown.exit_code == 1
    assert "10 rows of the first have inputs equal to those of a row of the second" in shown.output
    assert CliRunner().invoke(app, ["dataset", "leaks", "final", "apart"]).exit_code == 0
    assert run("dataset", "leaks", "final") == {
        "rows": {"final@1 train": 20, "final@1 held out": 0},
        "leaks": [],
    }
    shown = CliRunner().invoke(app, ["dataset", "show", "final"])
    assert "repeat" in shown.output
    for arguments, words in (
        (["final", "--part", "train"], "need two datasets"),
        (["final", "final@1"], "with itself"),
        (["final", "apart", "--column", "z"], "an input of both expected"),
        (["final@x", "apart"], "dataset 'final' has no tag 'x'"),
    ):
        with pytest.raises(OutriderError, match=words):
            run("dataset", "leaks", *arguments)
