"""Files that people sent in public, at every door that reads files of rows."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from outrider.behavioral_tests.cases import to_batch
from outrider.behavioral_tests.prediction_files import read_predictions
from outrider.cli import app
from outrider.commands.tables import read_table, table_options
from outrider.data_files import LeftOut, TableOptions
from outrider.errors import ConfigError, NothingToRead
from outrider.monitor.compare.traffic import Traffic
from outrider.monitor.files.blocks import FileBlock
from outrider.monitor.files.captures import CaptureNames
from outrider.monitor.files.columns import Names
from outrider.monitor.files.readers import ReadOptions, read_blocks
from outrider.monitor.files.sending import DeliveryProgress

PUBLIC = Path(__file__).with_name("public_cases")
Columns = dict[str, list[Any]]
Door = Callable[[Path], Columns]


def replayed(path: Path, table: TableOptions = TableOptions()) -> Columns:  # noqa: B008 - frozen
    """Input columns as ``replay`` sends them; a row that is left out is an error here."""

    def refuse(line: int, why: str) -> None:
        raise ConfigError(f"line {line}: {why}")

    columns: Columns = {}
    how = ReadOptions(Names(), CaptureNames(), table=table)
    for block in read_blocks(path, path.name, how, LeftOut(refuse)):
        if block.route != "records":
            continue
        if isinstance(block.rows, pa.Table):
            found = block.rows.to_pydict()
        else:
            rows = [row["inputs"] for row in block.rows]
            found = {name: [row.get(name) for row in rows] for row in rows for name in row}
        for name, values in found.items():
            if name not in ("id", "ts", "entity"):
                columns.setdefault(name.removeprefix("inputs."), []).extend(values)
    return columns


def tabled(path: Path) -> Columns:
    """Columns as drift, profile, learn, calibrate, convert and ``dataset import`` read them."""
    found: Columns = read_table(path, table_options(None)).to_pydict()
    return found


def cases(path: Path) -> Columns:
    batch = to_batch(path)
    return {
        name.removeprefix("inputs."): batch.arrow(name).to_pylist() for name in batch.names if "." in name
    }


def predictions(path: Path) -> Columns:
    return {name: values.tolist() for name, values in read_predictions(path).items()}


def compared(path: Path) -> Columns:
    columns: Columns = {}
    for batch in Traffic([path]):
        for name in batch.names:
            if name.startswith("inputs."):
                columns.setdefault(name.removeprefix("inputs."), []).extend(batch.arrow(name).to_pylist())
    return columns


DOORS = {
    "replay": replayed,
    "tables": tabled,
    "cases": cases,
    "predictions": predictions,
    "compare": compared,
}
UUIDS = [str(value) for value in pq.read_table(PUBLIC / "duckdb_uuid.parquet").column("uid").to_pylist()]
RIGHT: dict[str, tuple[str, list[Any]]] = {
    "UPPER.CSV": ("city", ["a", "b"]),
    "bom.jsonl": ("c", ["a", "b"]),
    "duckdb_uuid.parquet": ("uid", UUIDS),
    "pandas_index.csv": ("country", ["DE", "DE", "NA", "NA"]),
    "polars_categorical.arrow": ("cat", ["a", "b", "a", "b"]),
    "profile_types.parquet": ("wait_ms", [5.0, 5.0]),
    "sep_line.csv": ("city", ["a"]),
    "string_view.arrow": ("city", ["a"]),
}


@pytest.mark.filterwarnings("ignore:.*is left out")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", RIGHT)
def test_door_reads_public_file(door: str, name: str) -> None:
    column, values = RIGHT[name]
    found = DOORS[door](PUBLIC / name)
    assert found[column][: len(values)] == values
    assert not found.keys() & {"", "Unnamed: 0"}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "semicolon.csv",
            r"semicolon\.csv: 1 column in the header 'amount;city': separated by ';'\? .*--delimiter",
        ),
        ("tab.csv", r"tab\.csv: 1 column in the header .*: separated by tab\? .*--delimiter tab"),
        ("dup_header.csv", r"dup_header\.csv: column 'amount' stands twice, as columns 1 and 2"),
        ("empty_header.csv", r"empty_header\.csv: columns 1 and 3 have no name"),
    ],
)
def test_door_refuses_public_file_by_name(door: str, name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DOORS[door](PUBLIC / name)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nan.jsonl", r"1.*NaN is not JSON; send null"),
        ("surrogate.jsonl", r"1.*\\ud83d is half a character"),
    ],
)
def test_door_names_line_that_is_no_json(
    door: str, name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if door == "tables":
        assert tabled(PUBLIC / name)["c"][-1] in ("b", "x")
        assert len(tabled(PUBLIC / name)["c"]) == 1
        said = capsys.readouterr().err
    elif door == "compare":
        traffic = Traffic([PUBLIC / name])
        assert sum(batch.rows for batch in traffic) == 1
        said = json.dumps(traffic.funnel()["lines"], ensure_ascii=False).replace("\\\\", "\\")
    else:
        with pytest.raises(ConfigError) as refused:
            DOORS[door](PUBLIC / name)
        said = str(refused.value)
    assert re.search(words, said), said


@pytest.mark.parametrize("door", ["tables", "cases", "predictions"])
def test_door_refuses_file_without_a_row(door: str) -> None:
    with pytest.raises(NothingToRead, match=r"only_header\.csv: no row"):
        DOORS[door](PUBLIC / "only_header.csv")


def test_replay_and_profile_of_a_file_without_a_row_exit_with_5(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_URL", "http://127.0.0.1:9")
    found = CliRunner().invoke(app, ["replay", str(PUBLIC / "only_header.csv"), "--model", "m"])
    assert (found.exit_code, "no row" in found.output) == (5, True)
    found = CliRunner().invoke(app, ["profile", "--file", str(PUBLIC / "only_header.csv")])
    assert isinstance(found.exception, NothingToRead)


@pytest.mark.parametrize(
    ("name", "words"), [("all_null", "nulls 0 % → 100 %"), ("constant", "new categories `FR` 100 %")]
)
def test_drift_of_a_column_that_has_no_value_or_another_one_exits_with_1(name: str, words: str) -> None:
    files = [str(PUBLIC / f"{name}_{window}.parquet") for window in ("ref", "cur")]
    found = CliRunner().invoke(app, ["drift", "--json", "--reference", files[0], "--current", files[1]])
    assert found.exit_code == 1
    assert [one["words"] for one in json.loads(found.stdout)["columns"] if one["status"] == "drift"] == [
        words
    ]


ROWS = pa.table({"amount": [1, 2], "city": ["a", "b"]})


def written(folder: Path, ending: str) -> Path:
    path = folder / f"rows{ending}"
    kind = ending.lower().removesuffix(".gz")
    if kind == ".parquet":
        pq.write_table(ROWS, path)
    elif kind in (".arrow", ".ipc"):
        opener = pa.ipc.new_stream if kind == ".ipc" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, opener(sink, ROWS.schema) as writer:
            writer.write_table(ROWS)
    else:
        match kind:
            case ".csv":
                text = "\ufeffamount,city\r\n1,a\r\n2,b\r\n"
            case ".tsv":
                text = "amount\tcity\n1\ta\n2\tb\n"
            case ".json":
                text = json.dumps(ROWS.to_pylist())
            case _:
                text = "".join(json.dumps(row) + "\n" for row in ROWS.to_pylist())
        data = text.encode()
        path.write_bytes(gzip.compress(data) if ending.lower().endswith(".gz") else data)
    return path


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    "ending",
    [
        ".parquet",
        ".PARQUET",
        ".arrow",
        ".ipc",
        ".csv",
        ".CSV.GZ",
        ".tsv",
        ".json",
        ".JSONL",
        ".ndjson",
        ".jsonl.gz",
    ],
)
def test_door_reads_every_ending_in_any_case(tmp_path: Path, door: str, ending: str) -> None:
    found = DOORS[door](written(tmp_path, ending))
    assert (found["amount"], found["city"]) == ([1, 2], ["a", "b"])


def test_delimiter_and_decimal_comma_are_read_when_they_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("price;city\n1,5;a\n1.200,25;b\n")
    options = table_options(";")
    with pytest.raises(
        ConfigError, match=r"x\.csv: column 'price': numbers with a decimal comma.*--decimal ','"
    ):
        read_table(path, options)
    assert read_table(path, table_options(";", ",")).to_pydict() == {
        "price": [1.5, 1200.25],
        "city": ["a", "b"],
    }
    assert read_table(path, table_options(";", text=["price"])).column("price").to_pylist() == [
        "1,5",
        "1.200,25",
    ]
    assert replayed(path, TableOptions(";", ",")) == {"price": [1.5, 1200.25], "city": ["a", "b"]}
    assert tabled(PUBLIC / "sep_line.csv") == {"amount": [1], "city": ["a"]}


@pytest.mark.parametrize("door", [cases, predictions, compared])
def test_column_that_is_left_out_gives_a_warning(door: Door) -> None:
    with pytest.warns(UserWarning, match=r"pandas_index\.csv: the first column is left out: it has no name"):
        door(PUBLIC / "pandas_index.csv")


def test_columns_that_are_left_out_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    tabled(PUBLIC / "pandas_index_label.csv")
    assert "pandas_index_label.csv: the first column is left out: it has no name" in capsys.readouterr().err


def test_column_without_a_form_is_left_out_and_named_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spans = pa.array([pa.MonthDayNano((1, 2, 3))], pa.month_day_nano_interval())
    large = pa.array([2**64 - 1], pa.uint64())
    table = pa.table({"x": [1], "span": spans, "key": large, "n": pa.array([7], pa.uint64())})
    path = tmp_path / "x.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert tabled(path) == {"x": [1], "key": ["18446744073709551615"], "n": [7]}
    said = capsys.readouterr().err
    assert "column 'span' is left out: values of type month_day_nano_interval have no form" in said
    assert "column 'key' is read as text: it holds integers beyond 2^63" in said
    assert replayed(path) == {"x": [1], "key": ["18446744073709551615"], "n": [7]}


def test_column_of_json_without_a_common_type_is_left_out_and_named_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": 1, "mixed": "a", "y": 2}\n{"x": 2, "mixed": [1], "y": 3.5}\n')
    assert tabled(path) == {"x": [1, 2], "y": [2.0, 3.5]}
    assert "column 'mixed' is left out: its values have no common type" in capsys.readouterr().err


def test_replay_reads_chats_with_tools_in_the_columns_of_mirrored_chats() -> None:
    found = replayed(PUBLIC / "chats_with_tools.jsonl")
    assert found["prompt"] == ["Weather?"] * 5
    assert json.loads(found["messages"][0])[1]["tool_calls"][0]["function"]["name"] == "w"
    asked = json.loads(compared(PUBLIC / "chats_with_tools.jsonl")["request"][0])
    assert json.loads(found["messages"][0]) == asked["messages"]


def test_replay_reads_a_chat_beside_its_response(tmp_path: Path) -> None:
    message = {"role": "assistant", "content": "4"}
    line = {
        "request": {"model": "small", "messages": [{"role": "user", "content": "2+2?"}]},
        "response": {"model": "small-2", "choices": [{"message": message, "finish_reason": "stop"}]},
        "conversation": 7,
    }
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(line))
    (block,) = read_blocks(path, path.name, ReadOptions(Names(), CaptureNames()), LeftOut())
    assert block.rows == [
        {
            "inputs": {"prompt": "2+2?", "messages": '[{"content":"2+2?","role":"user"}]'},
            "outputs": {"answer": "4", "finish_reason": "stop"},
            "attrs": {"request_model": "small", "response_model": "small-2"},
            "entity": "7",
            "id": "log.jsonl:1",
        }
    ]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_compare_counts_labels_as_labels_and_no_questions(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"labels.{ending}"
    row = {"id": "a", "label.y": 1, "source": "ann"}
    match ending:
        case "csv":
            path.write_text("id,label.y,source\na,1,ann\n")
        case "jsonl":
            path.write_text(json.dumps(row))
        case _:
            pq.write_table(pa.Table.from_pylist([row]), path)
    traffic = Traffic([path])
    assert list(traffic) == []
    assert traffic.funnel()["reasons"] == [{"reason": "a label without a question", "count": 1}]


BROKEN = 'amount,city\n1,"a\nb"\n\n2,c,x\n3,d\nodd,e\n' + "".join(f"{n},z\n" for n in range(4, 40))


def column_of(block: FileBlock, name: str) -> pa.ChunkedArray:
    assert isinstance(block.rows, pa.Table)
    return block.rows.column(name)


def lines_and_ids(path: Path) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """Line of each id as it is sent, and the lines that are left out."""
    left = LeftOut()
    blocks = list(read_blocks(path, path.name, ReadOptions(Names(), CaptureNames(), rows=7), left))
    ids = [id_ for block in blocks for id_ in column_of(block, "id").to_pylist()]
    return dict(zip(ids, [at for block in blocks for at in block.places], strict=True)), left.rows


def test_ids_come_from_the_line_that_the_message_names(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(BROKEN)
    before, left = lines_and_ids(path)
    assert all(id_ == f"x.csv:{line}" for id_, line in before.items())
    lines = BROKEN.split("\n")
    assert [lines[line - 1] for line, _ in sorted(left)] == ["2,c,x", "odd,e"]
    assert sorted(left) == [
        (5, "2 values expected, got 3"),
        (7, "amount: int64 expected, got 'odd'"),
    ]
    path.write_text(BROKEN.replace("2,c,x", "2,c").replace("odd,e", "3,e"))
    after, left = lines_and_ids(path)
    assert not left
    assert after.keys() - before.keys() == {"x.csv:5", "x.csv:7"}
    assert before.keys() <= after.keys()


@pytest.mark.parametrize("broken", ["", "x,1,1\n", '"p\nq",2,3\n', "\n", '"v\nw",5\n'])
@pytest.mark.parametrize("begin", ["a,b\n", "sep=,\r\na,b\r\n", '"a\n",b\n', "\ufeff\na,b\n"])
def test_line_of_each_row_is_its_physical_one(tmp_path: Path, begin: str, broken: str) -> None:
    path = tmp_path / "x.csv"
    rows = [f"{n},key{n}\n" for n in range(60)]
    text = begin + "".join(row + broken * (n % 3) for n, row in enumerate(rows)) + broken
    path.write_bytes(text.encode())
    found, left = lines_and_ids(path)
    physical = {line.split(",")[1]: at for at, line in enumerate(text.split("\n"), 1) if ",key" in line}
    blocks = read_blocks(path, path.name, ReadOptions(Names(), CaptureNames(), rows=7), LeftOut())
    keys = [
        (key, at)
        for block in blocks
        for key, at in zip(column_of(block, "inputs.b").to_pylist(), block.places, strict=True)
        if key.startswith("key")
    ]
    assert dict(keys) == physical
    assert len(keys) == 60
    assert len(found.keys()) == len(set(found.values()))
    malformed = text.count(broken) if broken.count(",") == 2 else 0
    assert len(left) == min(malformed, 20)


def test_a_repaired_line_is_sent_on_resuming_and_no_other(tmp_path: Path) -> None:
    path, state = tmp_path / "x.csv", tmp_path / "state"
    path.write_text(BROKEN)
    progress = DeliveryProgress(state, "m")
    left = LeftOut()
    for block in read_blocks(path, path.name, ReadOptions(Names(), CaptureNames(), rows=7), left):
        progress.note(path, block.done, [line for line, _ in left.rows])
    path.write_text(BROKEN.replace("2,c,x", "2,c ") + "50,new\n")
    sent = DeliveryProgress(state, "m").sent(path)
    left = LeftOut()
    blocks = read_blocks(path, path.name, ReadOptions(Names(), CaptureNames(), rows=7), left, sent=sent)
    assert [id_ for block in blocks for id_ in column_of(block, "id").to_pylist()] == ["x.csv:5", "x.csv:44"]
    assert [line for line, _ in left.rows] == [7]


MIN = [
    {
        "id": 11,
        "text": "great film",
        "sentiment": "Positive",
        "annotator": 1,
        "annotation_id": 3,
        "lead_time": 2.5,
    }
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("form", ["JSON", "JSON-MIN"])
def test_door_refuses_tasks_of_label_studio_with_the_way_to_go(tmp_path: Path, door: str, form: str) -> None:
    path = tmp_path / "label_studio.json"
    whole = (PUBLIC / "label_studio.json").read_text()
    path.write_text(whole if form == "JSON" else json.dumps(MIN))
    words = "an export of Label Studio.*POST /v1/labels"
    if door == "compare":
        traffic = Traffic([path])
        assert list(traffic) == []
        assert all(re.match(words[:26], line["reason"]) for line in traffic.funnel()["lines"])
        return
    with pytest.raises(ConfigError, match=words):
        DOORS[door](path)


def test_file_whose_rows_are_all_malformed_has_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2,3\n")
    with pytest.raises(NothingToRead, match=r"x\.csv: no row"):
        tabled(path)
