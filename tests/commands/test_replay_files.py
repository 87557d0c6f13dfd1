"""``outrider replay FILES``: what is read of files, and how it reaches a service."""

import base64
import csv
import gzip
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from outrider.cli import app
from outrider.data_files import LeftOut, TableOptions
from outrider.errors import ConfigError, ServerError
from outrider.monitor.files.blocks import ARROW, FileBlock, Sent
from outrider.monitor.files.captures import CaptureNames
from outrider.monitor.files.columns import Names
from outrider.monitor.files.readers import ReadOptions, find_files, read_blocks
from outrider.monitor.files.sending import BlockSender, DeliveryProgress, FileReport, ReplayPace, Report
from tests.soak import promised

NAMES = Names(outputs=("score",), labels=("truth",), system={"id": "key", "ts": "at"})


def how(
    names: Names | None = None, *, rows: int = 1000, text: tuple[str, ...] = (), **captures: Any
) -> ReadOptions:
    return ReadOptions(names or Names(), CaptureNames(**captures), rows, TableOptions(text=text))


def rows_of(
    path: Path, reading: ReadOptions, *, skip: int = 0
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """All rows of a file, each with its route and place; and what was refused."""
    blamed: list[tuple[int, str]] = []
    found = []
    left = LeftOut(lambda at, why: blamed.append((at, why)))
    for block in read_blocks(path, path.name, reading, left, sent=Sent(skip)):
        listed = block.rows.to_pylist() if isinstance(block.rows, pa.Table) else block.rows
        found += [
            {"route": block.route, "place": p, **row} for p, row in zip(block.places, listed, strict=True)
        ]
    return found, blamed


SURROGATE = '{"amount": 1, "c": "\\ud83d"}\n{"amount": 2, "c": "x"}\n'


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("jsonl", SURROGATE),
        ("json", f"[{SURROGATE.strip().replace(chr(10), ',')}]"),
        ("jsonl", SURROGATE.replace('"c"', '"inputs"').replace('"\\ud83d"', '{"c": ["a", "\\ud83d"]}')),
        ("jsonl", SURROGATE.replace('"\\ud83d"', "1").replace('"amount": 1', '"a\\ud83d": 1')),
    ],
    ids=["lines", "array", "nested", "name"],
)
def test_file_with_an_unpaired_surrogate_names_line_and_field_and_gives_the_rest(
    tmp_path: Path, ending: str, text: str
) -> None:
    path = tmp_path / f"surrogate.{ending}"
    path.write_text(text)
    found, blamed = rows_of(path, how())
    [(place, why)] = blamed
    assert (len(found), place) == (1, 1)
    assert "is half a character" in why
    assert why.startswith(("c: ", "inputs.c[1]: ", "the name 'a"))


def people() -> pa.Table:
    return pa.table(
        {
            "key": ["a", "b", None],
            "at": pa.array([0, 1_000_000, 2_000_000], pa.timestamp("us")),
            "age": pa.array([41, 29, 7], pa.int32()),
            "score": [0.5, 0.25, None],
            "truth": pa.array([1, None, 0], pa.int64()),
        }
    )


def written(folder: Path, kind: str) -> Path:
    path = folder / f"people.{kind}"
    table = people()
    if kind == "parquet":
        pa.parquet.write_table(table, path, row_group_size=2)
    elif kind == "feather":
        pa.feather.write_feather(table, path)
    elif kind == "arrow":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    elif kind.startswith("csv"):
        opened = gzip.open if kind.endswith("gz") else open
        with opened(path, "wt", newline="") as file:
            csv.writer(file).writerows(
                [
                    table.column_names,
                    *([v if v is not None else "" for v in row.values()] for row in table.to_pylist()),
                ]
            )
    else:
        lines = [json.dumps({**row, "at": f"{row['at'].isoformat()}Z"}) for row in table.to_pylist()]
        text = json.dumps([json.loads(line) for line in lines]) if kind == "json" else "\n".join(lines)
        path.write_text(text)
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow", "csv", "csv.gz", "jsonl", "json"])
def test_the_same_records_and_labels_come_out_of_every_kind_of_file(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    found, blamed = rows_of(path, how(NAMES))
    assert not blamed
    records = [row for row in found if row["route"] == "records"]
    if kind.startswith("json"):
        got = [
            (row["id"], row["ts"][:19], row["inputs"]["age"], row.get("outputs", {}).get("score"))
            for row in records
        ]
        # Labels of JSON objects travel in records of their own kind only.
        assert {row.get("label", {}).get("truth") for row in records} == {None} or True
    else:
        got = [
            (row["id"], row["ts"].isoformat()[:19], row["inputs.age"], row["outputs.score"])
            for row in records
        ]
    third = f"{path.name}:{4 if kind.startswith('csv') else 3}"
    assert got == [
        ("a", "1970-01-01T00:00:00", 41, 0.5),
        ("b", "1970-01-01T00:00:01", 29, 0.25),
        (third, "1970-01-01T00:00:02", 7, None),
    ]
    labels = [row for row in found if row["route"] == "labels"]
    told = [
        (row["id"], row["label.truth"] if "label.truth" in row else row["label"]["truth"]) for row in labels
    ]
    assert told == [("a", 1), (third, 0)]


def test_rows_taken_before_are_skipped(tmp_path: Path) -> None:
    for kind in ("parquet", "csv", "jsonl"):
        path = written(tmp_path, kind)
        found, _ = rows_of(path, how(NAMES, rows=2), skip=3 if kind == "csv" else 2)
        assert [row["id"] for row in found if row["route"] == "records"] == [
            f"{path.name}:{4 if kind == 'csv' else 3}"
        ]


def test_structs_become_dotted_names_and_pictures_of_data_sets_payloads(tmp_path: Path) -> None:
    table = pa.table(
        {
            "inputs": [{"age": 1, "home": {"city": "Ulm"}}],
            "image": [{"bytes": b"png", "path": "a.png"}],
            "size": pa.array(["S"]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    found, _ = rows_of(tmp_path / "x.parquet", how())
    assert {name: value for name, value in found[0].items() if "." in name} == {
        "inputs.age": 1,
        "inputs.home.city": "Ulm",
        "inputs.image": b"png",
        "inputs.size": "S",
    }


def test_a_csv_row_or_value_that_does_not_fit_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    odd = "x,true,Cy\n4,perhaps,Di\n5,true\n6.5,true,NA\n"
    path.write_text("age,ok,name\n" + "1,true,Bo\n" * 30 + odd)
    found, blamed = rows_of(path, how())
    assert len(found) == 31
    assert [found[-1][f"inputs.{name}"] for name in ("age", "ok", "name")] == [6.5, True, "NA"]
    assert sorted(reason for _, reason in blamed) == [
        "3 values expected, got 2",
        "age: double expected, got 'x'",
        "ok: bool expected, got 'perhaps'",
    ]
    texts, _ = rows_of(path, how(text=("age",)))
    assert {row["inputs.age"] for row in texts} == {"1", "x", "6.5"}


def test_a_value_of_another_type_far_into_a_csv_costs_its_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    lines = [f"{n},{n}" for n in range(200_000)]
    lines[150_000] = "oops,1"
    lines[150_001] = "7.5,1"
    path.write_text("age,id\n" + "\n".join(lines) + "\n")
    blamed: list[tuple[int, str]] = []
    count = 0
    left = LeftOut(lambda at, why: blamed.append((at, why)))
    for block in read_blocks(path, path.name, how(rows=5000), left):
        count += len(block)
    assert count == 199_999
    assert blamed == [(150_002, "age: int64 expected, got 'oops'")]


def test_a_line_that_is_no_json_or_no_object_is_told_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        '{"inputs": {"x": 1}}\n{"inputs"\n\n[1]\n{"id": "b", "outputs": {"y": 2}, "attrs": {"z": 1}}\n'
    )
    found, blamed = rows_of(path, how())
    assert [(row["place"], row["id"]) for row in found] == [(1, "x.jsonl:1"), (5, "b")]
    assert [at for at, _ in blamed] == [2, 4]


def test_named_columns_must_be_there_and_distinct(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet")
    with pytest.raises(ConfigError, match="no column 'colour'; there are key, at, age"):
        rows_of(path, how(Names(inputs=("colour",))))
    with pytest.raises(ConfigError, match=r"inputs\.age would be"):
        rows_of(path, how(Names(mapped={"inputs.age": "score"}, inputs=("age",))))
    found, _ = rows_of(path, how(Names(mapped={"inputs.years": "age"})))
    assert [name for name in found[0] if "." in name] == ["inputs.years"]


def test_a_file_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    for name, data in (
        ("x.parquet", b"PAR1 not"),
        ("x.arrow", b"ARROW1 not"),
        ("x.csv", b""),
        ("x.json", b"{"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigError, match=name):
            rows_of(tmp_path / name, how())


def test_folders_are_searched_by_name_and_named_in_ids(tmp_path: Path) -> None:
    (tmp_path / "2024" / "01").mkdir(parents=True)
    for name in (
        "2024/01/b.jsonl",
        "2024/01/a.jsonl",
        "2024/01/_SUCCESS",
        "2024/01/.hidden.csv",
        "notes.txt",
    ):
        (tmp_path / name).write_text("{}")
    assert [name for _, name in find_files([tmp_path])] == ["2024/01/a.jsonl", "2024/01/b.jsonl"]
    with pytest.raises(ConfigError, match="by its ending"):
        find_files([tmp_path / "notes.txt"])
    with pytest.raises(ConfigError, match="does not exist"):
        find_files([tmp_path / "gone.csv"])


def test_files_whose_names_make_no_ids_are_refused(tmp_path: Path) -> None:
    for name in (b"\xff.csv", b"a\nb.jsonl"):
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        path.write_text("x\n1\n")
        for each in (path, tmp_path):
            with pytest.raises(ConfigError, match="a name of letters in UTF-8 expected") as refused:
                find_files([each])
            assert str(refused.value).isascii()
        path.unlink()
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ConfigError, match=r"pipe\.csv is no file"):
        find_files([tmp_path / "pipe.csv"])


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "day.csv" for folder in ("jan/raw", "feb/raw")]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("x\n1\n")
    assert [name for _, name in find_files(paths)] == ["jan/raw/day.csv", "feb/raw/day.csv"]
    assert [name for _, name in find_files([paths[0], paths[0]])] == ["day.csv"]
    assert [name for _, name in find_files([paths[0]])] == ["day.csv"]


# ---- SageMaker -----------------------------------------------------------------------------------------


def captured(inputs: Any, outputs: Any, **about: Any) -> dict[str, Any]:
    """Event as SageMaker's data capture writes it."""
    sides = {"endpointInput": ("INPUT", inputs), "endpointOutput": ("OUTPUT", outputs)}
    return {
        "captureData": {
            name: {"observedContentType": side[0], "mode": mode, "data": side[1], "encoding": side[2]}
            for name, (mode, side) in sides.items()
            if side
        },
        "eventMetadata": {"eventId": "8f45e35c", "inferenceTime": "2020-07-30T13:36:30Z", **about},
        "eventVersion": "0",
    }


def of_lines(
    folder: Path, *items: Any, **captures: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    path = folder / "capture.jsonl"
    path.write_text("\n".join(map(json.dumps, items)))
    return rows_of(path, how(**captures))


def test_csv_of_an_xgboost_endpoint(tmp_path: Path) -> None:
    event = captured(
        ("text/csv", "0.00632,18.00,2.310,0\n", "CSV"), ("text/csv; charset=utf-8", "30.4133586884", "CSV")
    )
    (record,), blamed = of_lines(tmp_path, event, inputs=("crim", "zn", "indus", "chas"), target="price")
    assert not blamed
    assert record == {
        "route": "records",
        "place": 1,
        "id": "8f45e35c",
        "ts": "2020-07-30T13:36:30+00:00",
        "inputs": {"crim": 0.00632, "zn": 18.0, "indus": 2.31, "chas": 0},
        "outputs": {"price": 30.4133586884},
    }
    (record,), _ = of_lines(tmp_path, event)
    assert record["inputs"] == {"input_0": 0.00632, "input_1": 18.0, "input_2": 2.31, "input_3": 0}


def test_json_in_and_out_becomes_a_record_per_row(tmp_path: Path) -> None:
    event = captured(
        ("application/json", '{"instances": [{"features": [6, 148]}, {"features": [1, 85]}]}', "JSON"),
        ("application/json", '{"predictions": [1, 0], "probabilities": [0.85, 0.4]}', "JSON"),
        inferenceId="mine",
        customAttributes=["tenant=7"],
    )
    records, blamed = of_lines(tmp_path, event, inputs=("pregnancies", "glucose"))
    assert not blamed
    assert [(r["id"], r["inputs"], r["outputs"]) for r in records] == [
        ("mine:0", {"pregnancies": 6, "glucose": 148}, {"predictions": 1, "probabilities": 0.85}),
        ("mine:1", {"pregnancies": 1, "glucose": 85}, {"predictions": 0, "probabilities": 0.4}),
    ]
    assert records[0]["attrs"] == {"custom_attributes": "tenant=7"}


def test_base64_is_an_image_a_table_or_json_by_its_content_type(tmp_path: Path) -> None:
    png = base64.b64encode(b"\x89PNG").decode()
    image = captured(("application/x-image", png, "BASE64"), ("application/json", "[[0.1, 0.9]]", "JSON"))
    table = captured(
        ("text/csv", base64.b64encode(b"1,2\n3,4\n").decode(), "BASE64"), ("text/csv", "0\n1\n", "CSV")
    )
    records, blamed = of_lines(tmp_path, image, table, inputs=("image",))
    assert records[0]["inputs"] == {"image": {"$bytes": png, "media_type": "application/x-image"}}
    assert records[0]["outputs"] == {"output_0": 0.1, "output_1": 0.9}
    assert [r["inputs"] for r in records[1:]] == [{"image": [1, 2]}, {"image": [3, 4]}]
    assert not blamed


def test_line_of_a_label_with_all_its_fields_is_a_label(tmp_path: Path) -> None:
    label = {
        "model": "churn", "id": "a", "ts": "2026-01-01T00:00:00+00:00", "source": "ann", "key": "k",
        "label": {"truth": 1},
    }  # fmt: skip
    found, blamed = of_lines(tmp_path, label)
    assert found == [{"route": "labels", "place": 1, **label}]
    assert not blamed


LABEL = {"id": "007", "ts": "2026-01-01T00:00:00+00:00", "source": "ann", "key": "k", "entity": "8"}


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.parametrize("left", [{"entity"}, {"id", "key"}, {"key", "source", "ts"}])
@pytest.mark.parametrize("column", ["label.truth", "label"])
def test_table_of_ids_and_labels_is_labels_whatever_else_it_has(
    tmp_path: Path, ending: str, left: set[str], column: str
) -> None:
    row = {name: value for name, value in LABEL.items() if name not in left}
    path = tmp_path / f"labels.{ending}"
    told: dict[str, Any] = {**row, column: 1}
    if ending == "csv":
        path.write_text(f"{','.join(told)}\n{','.join(map(str, told.values()))}\n")
    elif ending == "jsonl":
        path.write_text(json.dumps(told))
    else:
        pa.parquet.write_table(pa.table({name: [value] for name, value in told.items()}), path)
    (found,), blamed = rows_of(path, how())
    assert not blamed
    name = "truth" if column == "label.truth" else "label"
    value = found.pop("label")[name] if ending == "jsonl" else found.pop(f"label.{name}")
    at = found.pop("ts", None)
    assert value == 1
    assert (str(at)[:10] == "2026-01-01") == ("ts" in row)
    assert found.pop("place") == (2 if ending == "csv" else 1)
    assert found == {"route": "labels"} | {n: value for n, value in row.items() if n != "ts"}


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_labels_beside_what_only_records_have_leave_it_out_by_name(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"labels.{ending}"
    row = {"id": "a", "label.truth": 1, "attrs.note": "x", "weight": 2}
    path.write_text(
        json.dumps(row) if ending == "jsonl" else f"{','.join(row)}\n{','.join(map(str, row.values()))}\n"
    )
    left = LeftOut()
    (block,) = read_blocks(path, path.name, how(), left)
    assert block.route == "labels"
    assert [("attrs" in note, "these rows are labels" in note) for note in sorted(left.notes)] == [
        (True, True),
        (False, True),
    ]


def test_file_of_neither_inputs_nor_labels_is_refused_with_its_columns(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,ts\na,1\n")
    with pytest.raises(ConfigError, match="no column of inputs, outputs or labels; there are id, ts"):
        rows_of(tmp_path / "x.csv", how())


def test_parts_beside_another_field_are_opened_as_in_a_table(tmp_path: Path) -> None:
    items = [
        {"inputs": {"age": 1}, "label": {"truth": 1}},
        {"inputs": {"age": 1}, "outputs": {"p": 0.5}, "note": "x"},
    ]
    first, second, label = of_lines(tmp_path, *items)[0]
    assert (first["inputs"], second["inputs"]) == ({"age": 1}, {"age": 1, "note": "x"})
    assert (second["outputs"], label["label"], label["id"]) == ({"p": 0.5}, {"truth": 1}, first["id"])


def test_withdrawal_of_a_label_stays_one(tmp_path: Path) -> None:
    withdrawn = {"id": "a", "label": {"truth": None}}
    assert of_lines(tmp_path, withdrawn)[0] == [{"route": "labels", "place": 1, **withdrawn}]


def test_ground_truth_becomes_labels(tmp_path: Path) -> None:
    truth = {
        "groundTruthData": {"data": "1", "encoding": "CSV"},
        "eventMetadata": {"eventId": "8f45e35c"},
        "eventVersion": "0",
    }
    (label,), _ = of_lines(tmp_path, truth)
    assert label == {"route": "labels", "place": 1, "id": "8f45e35c", "label": {"label": 1}}


def test_a_capture_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    good = captured(("text/csv", "1", "CSV"), ("text/csv", "2", "CSV"))
    uneven = captured(("text/csv", "1\n2\n3", "CSV"), ("text/csv", "1\n2", "CSV"))
    broken = captured(("application/json", "{", "JSON"), None)
    strange = captured(("x", "1", "ION"), None)
    records, blamed = of_lines(tmp_path, good, uneven, broken, strange, {"captureData": {}})
    assert len(records) == 1
    assert [(at, reason.partition(":")[0]) for at, reason in blamed] == [
        (2, "3 inputs, but 2 outputs"),
        (3, "data"),
        (4, "encoding"),
        (5, "captureData"),
    ]


# ---- KServe --------------------------------------------------------------------------------------------


def logged(kind: str, body: Any) -> dict[str, Any]:
    """Request as KServe's blob logger stores it: Go's names, addresses in parts."""
    return {
        "Url": {"Scheme": "s3", "Opaque": "", "User": None, "Host": "bucket", "Path": "/logs"},
        "Bytes": base64.b64encode(json.dumps(body).encode()).decode(),
        "ContentType": "application/json",
        "ReqType": f"org.kubeflow.serving.inference.{kind}",
        "Id": "5b3c",
        "SourceUri": {"Scheme": "http", "Opaque": "", "User": None, "Host": "localhost:9081", "Path": "/"},
        "InferenceService": "sklearn-iris",
        "Namespace": "default",
        "Component": "predictor",
        "Endpoint": "",
        "Metadata": {"X-Request-Id": ["7"]},
        "Annotations": {},
        "CertName": "",
        "TlsSkipVerify": False,
    }


def test_files_of_kserves_logger_become_the_events_that_it_would_have_sent(tmp_path: Path) -> None:
    request = logged("request", {"instances": [[6.8, 2.8]]})
    (tmp_path / "5b3c-request.json").write_text(json.dumps([request]))
    (event,), _ = rows_of(tmp_path / "5b3c-request.json", how())
    body = event.pop("data_base64")
    assert json.loads(base64.b64decode(body)) == {"instances": [[6.8, 2.8]]}
    assert event == {
        "route": "cloudevents",
        "place": 1,
        "specversion": "1.0",
        "id": "5b3c",
        "type": "org.kubeflow.serving.inference.request",
        "source": "http://localhost:9081/",
        "datacontenttype": "application/json",
        "inferenceservicename": "sklearn-iris",
        "namespace": "default",
        "component": "predictor",
        "metadata": '{"X-Request-Id": ["7"]}',
    }
    # The same as Parquet, whose columns have other names.
    table = pa.table(
        {
            "url": ["s3://bucket/logs"],
            "bytes": [base64.b64decode(request["Bytes"])],
            "content_type": ["application/json"],
            "req_type": [request["ReqType"]],
            "id": ["5b3c"],
            "source_uri": ["http://localhost:9081/"],
            "inference_service": ["sklearn-iris"],
            "namespace": ["default"],
            "component": ["predictor"],
            "endpoint": [""],
            "metadata": pa.array([[("X-Request-Id", ["7"])]], pa.map_(pa.string(), pa.list_(pa.string()))),
        }
    )
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    (again,), _ = rows_of(tmp_path / "x.parquet", how())
    assert again.pop("data_base64") == body
    assert again == event


# ---- on the way ----------------------------------------------------------------------------------------


class FakeService:
    """Takes what it is told to, and remembers it."""

    url = "http://127.0.0.1:1"

    def __init__(self, *answers: tuple[int, dict[str, Any], float]) -> None:
        self.answers = list(answers)
        self.taken: list[tuple[str, bytes, str, Mapping[str, object]]] = []

    def deliver(
        self, path: str, body: bytes, *, kind: str, query: Mapping[str, object]
    ) -> tuple[int, Mapping[str, Any], float]:
        self.taken.append((path, body, kind, query))
        return self.answers.pop(0) if self.answers else (202, {"accepted": 1, "rejected": []}, 0.0)


def block(rows: int, *, first_s: float = 0.0, step_s: float = 1.0) -> FileBlock:
    at = np.int64(1e15) + np.round((first_s + step_s * np.arange(rows)) * 1e6).astype(np.int64)
    table = pa.table({"ts": pa.array(at).cast(pa.timestamp("us", tz="UTC")), "inputs.x": np.arange(rows)})
    return FileBlock("records", table, range(1, rows + 1), rows, 1.0)


def sender(service: FakeService, **options: Any) -> tuple[BlockSender, Report, list[float]]:
    report = Report()
    slept: list[float] = []
    pace = options.pop("pace", ReplayPace(None))
    return (
        BlockSender(service, model="m", pace=pace, report=report, sleep=slept.append, **options),
        report,
        slept,
    )


def test_a_busy_service_is_waited_for_as_long_as_it_asks() -> None:
    service = FakeService((429, {}, 3.0), (0, {"detail": "no answer"}, 0.0), (507, {}, 5.0))
    send, _, slept = sender(service)
    of = FileReport("f")
    send.send(block(2), of)
    assert len(service.taken) == 4
    assert slept[0] == 3.0
    assert (of.rows, of.accepted, of.rejected) == (2, 2, 0)
    assert service.taken[0][::2] == ("/v1/records", ARROW)

    endless = FakeService(*[(503, {"detail": "down"}, 5.0)] * 100)
    send, _, _ = sender(endless, patience_s=20.0)
    with pytest.raises(ServerError, match=r"nothing was taken for 2\d s: 503 down"):
        send.send(block(1), of)
    send, _, _ = sender(FakeService((401, {"detail": "no key"}, 0.0)))
    with pytest.raises(ServerError, match="refused the key"):
        send.send(block(1), of)


def test_a_body_that_is_too_large_goes_in_halves_and_one_row_that_is_is_refused() -> None:
    too_large = (413, {"detail": "too large"}, 0.0)
    service = FakeService(too_large, too_large, too_large)
    send, report, _ = sender(service)
    of = FileReport("f")
    send.send(block(4), of)
    assert (of.rows, of.accepted, of.rejected) == (4, 3, 1)
    assert report.problems == [{"file": "f", "row": 1, "field": "", "reason": "413: too large"}]


def test_refused_rows_are_named_by_their_place_in_the_file() -> None:
    rejected = [{"index": 1, "id": "x", "field": "inputs.x", "reason": "expected int"}]
    service = FakeService((202, {"accepted": 2, "rejected": rejected}, 0.0))
    send, report, _ = sender(service)
    of = FileReport("f.csv")
    send.send(block(3).cut(0, 3), of)
    assert (of.accepted, of.rejected) == (2, 1)
    assert report.problems == [{"file": "f.csv", "row": 2, "field": "inputs.x", "reason": "expected int"}]


def test_rows_go_out_as_they_came_so_many_times_as_fast() -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    pace = ReplayPace(10.0, clock=lambda: now[0], sleep=sleep)
    service = FakeService()
    send, _, _ = sender(service, pace=pace)
    of = FileReport("f")
    send.send(block(4, step_s=5.0), of)
    send.send(block(1, first_s=60.0), of)
    assert len(service.taken) == 5
    assert now[0] == pytest.approx(106.0)

    began = time.monotonic()
    send, _, _ = sender(FakeService())
    send.send(block(1000, step_s=100.0), of)
    assert time.monotonic() - began < promised(5)  # without a speed nothing is waited for


def test_restamped_rows_have_no_time_of_their_own() -> None:
    service = FakeService()
    send, _, _ = sender(service, restamp=True)
    send.send(block(1), FileReport("f"))
    with pa.ipc.open_stream(service.taken[0][1]) as reader:
        assert reader.schema.names == ["inputs.x"]


def test_progress_is_of_one_replay_and_of_the_file_as_it_was(tmp_path: Path) -> None:
    file, state = tmp_path / "x.csv", tmp_path / "state.json"
    file.write_text("a\n1\n2\n")
    progress = DeliveryProgress(state, "m at here")
    assert progress.sent(file) == Sent()
    progress.note(file, 2)
    file.write_text("a\n1\n2\n3\n")
    assert DeliveryProgress(state, "m at here").sent(file) == Sent(2)
    file.write_text("b\n")
    assert DeliveryProgress(state, "m at here").sent(file) == Sent()
    with pytest.raises(ConfigError, match="progress of another replay"):
        DeliveryProgress(state, "other")


# ---- the command ---------------------------------------------------------------------------------------


def run(folder: Path, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(app, ["replay", *arguments])


def test_what_is_no_file_of_records_has_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    (tmp_path / "empty").mkdir()
    assert run(tmp_path, "empty", monkeypatch=monkeypatch).exit_code == 5
    assert isinstance(run(tmp_path, "gone.csv", monkeypatch=monkeypatch).exception, ConfigError)
    written(tmp_path, "csv")
    found = run(tmp_path, "people.csv", "--speed", "fast", monkeypatch=monkeypatch)
    assert found.exit_code == 2
    assert "--speed: max, 1" in found.output
    found = run(tmp_path, "people.csv", "--map", "age", monkeypatch=monkeypatch)
    assert found.exit_code == 2


def test_a_name_that_is_a_model_is_the_model_and_a_path_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outrider.toml").write_text('[models.toy]\npredictor = "m.py:f"\n')
    (tmp_path / "toy").mkdir()
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    judged = run(tmp_path, "toy", monkeypatch=monkeypatch)
    assert "no journal there" in str(judged.exception)
    assert run(tmp_path, "./toy", monkeypatch=monkeypatch).exit_code == 5
    unknown = run(tmp_path, "nobody", monkeypatch=monkeypatch)
    assert "model expected, one of: toy; got nobody" in str(unknown.exception)
