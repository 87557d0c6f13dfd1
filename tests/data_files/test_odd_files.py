"""Odd, broken and hostile files at every door: read right, or refused with file, place and reason."""

import csv
import decimal
import gzip
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from outrider.cli import app
from outrider.data_files import LeftOut, TableOptions, read_table
from outrider.errors import ConfigError, NothingToRead, OutriderError
from outrider.monitor.compare.traffic import Traffic
from outrider.monitor.files.captures import CaptureNames
from outrider.monitor.files.columns import Names
from outrider.monitor.files.readers import ReadOptions, read_blocks
from tests.commands.test_replay_files import logged

from .test_doors import DOORS, tabled

CSV = "amount,city\n1,a\n2,b\n"
LINES = '{"amount": 1, "city": "a"}\n{"amount": 2, "city": "b"}\n'
PACKED = gzip.compress(CSV.encode() * 200)
ENCODING = "UTF-8 expected, got {}; write the file as UTF-8"


def arrow(columns: dict[str, Any], *, is_stream: bool = False) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with (pa.ipc.new_stream if is_stream else pa.ipc.new_file)(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def unchecked(*texts: bytes) -> pa.Array:
    return pa.array(texts, pa.binary()).view(pa.string())


def one_array() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.arange(3))
    return sink.getvalue()


REFUSED: dict[str, tuple[bytes, str]] = {
    "utf16.csv": (CSV.encode("utf-16"), ENCODING.format("UTF-16")),
    "utf16_no_mark.csv": (CSV.encode("utf-16-le"), ENCODING.format("UTF-16")),
    "utf16.jsonl": (LINES.encode("utf-16"), ENCODING.format("UTF-16")),
    "utf16_no_mark.json": (b"[1]".decode().encode("utf-16-be"), ENCODING.format("UTF-16")),
    "latin.csv": ("city\nZürich\n".encode("latin-1"), ENCODING.format("another encoding")),
    "header_nul.csv": (b"long_name\0,city\n1,a\n", ENCODING.format("NUL bytes")),
    "header_quote.csv": (b'amount,"city\n1,a\n', "line 1: a header expected: unexpected end of data"),
    "twice.csv": (b"amount,city,amount\n1,a,3\n", "'amount' stands twice, as columns 1 and 3"),
    "packed.csv": (PACKED, "text expected, got gzip; name the file .gz"),
    "packed.jsonl": (gzip.compress(LINES.encode()), "text expected, got gzip; name the file .gz"),
    "cut.csv.gz": (PACKED[: len(PACKED) // 2], "cannot be read: Compressed file ended"),
    "cut_sum.csv.gz": (PACKED[:-4], "cannot be read: Truncated compressed stream"),
    "cut.jsonl.gz": (gzip.compress(LINES.encode() * 500)[:-20], "cannot be read: Compressed file ended"),
    "sum.jsonl.gz": (gzip.compress(LINES.encode())[:-8] + bytes(8), "cannot be read: CRC check failed"),
    "plain.csv.gz": (CSV.encode(), "cannot be read: Not a gzipped file"),
    "comma.json": (b'[{"amount": 1}, ]', "JSON expected: .*trailing comma"),
    "two.json": (b"{}{}", "JSON expected: .*trailing characters"),
    "cut.parquet": (parquet({"x": [1]})[:-10], "cannot be read: Parquet magic bytes"),
    "cut.arrow": (arrow({"x": [1]})[:-30], "cannot be read: Not an Arrow file"),
    "text.parquet": (CSV.encode(), "cannot be read: Parquet magic bytes"),
    "one.npz": (one_array(), "an archive of arrays expected, got one array"),
}
"""Files that no door takes, with the reason."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", REFUSED)
def test_door_refuses_odd_file_as_a_whole_with_the_reason(tmp_path: Path, door: str, name: str) -> None:
    content, words = REFUSED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{re.escape(name)}.*{words}"):
        DOORS[door](tmp_path / name)


@pytest.mark.parametrize("door", ["tables", "cases", "predictions"])
@pytest.mark.parametrize("name", ["empty.jsonl", "empty.json", "list.json", "blank.ndjson", "no_row.parquet"])
def test_door_says_that_a_file_has_no_row(tmp_path: Path, door: str, name: str) -> None:
    content = {
        "list.json": b"[]",
        "blank.ndjson": b"\n\n",
        "no_row.parquet": parquet({"x": pa.array([], "int8")}),
    }
    (tmp_path / name).write_bytes(content.get(name, b""))
    with pytest.raises(NothingToRead, match=f"{name}: no row"):
        DOORS[door](tmp_path / name)


FAR = pa.array([0, 10**14], pa.timestamp("s"))
GOOD = pa.array([1, 2])
BAD = unchecked(b"a", b"\xff")
ROWS: dict[str, tuple[bytes, int, str]] = {
    "header.csv": (b"amount,city\n1,a\namount,city\n", 3, "the header again"),
    "quote.csv": (b'amount,city\n1,a\n2,"b\n3,c\n4,d\n', 3, "a quote that opens there is not"),
    "quote.csv.gz": (gzip.compress(b'amount,city\n1,a\n2,"b\n3,c'), 3, "a quote that opens there is not"),
    "short.csv": (b'amount,city,n\n1,a,1\n2,"b\n3,c,1\n', 3, "got 2; it goes over 2 lines: is a quote open"),
    "beyond.csv": (b"amount,n\n1,1.5\n2,1e400\n", 3, "n: double expected, got '1e400'"),
    "comma.jsonl": (b'{"amount": 1}\n{"amount": 2},\n', 2, "got a comma behind it: delete it"),
    "latin.jsonl": ('{"amount": 1}\n{"c": "Zürich"}\n'.encode("latin-1"), 2, "UTF-8 expected, got byte 0xfc"),
    "latin.json": ('[{"amount": 1}, {"c": "Zürich"}]'.encode("latin-1"), 2, "UTF-8 expected, got byte 0xfc"),
    "nul.jsonl": (b'{"amount": 1}\n{"c": "\0"}\n', 2, "invalid character"),
    "beyond.jsonl": (b'{"amount": 1}\n{"amount": 1e400}\n', 2, "Number out of range"),
    "deep.jsonl": (b'{"amount": 1}\n{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", 2, "recursion depth"),
    "number.jsonl": (b'{"amount": 1}\n5\n', 2, "expected.*got `?(int|5)"),
    "texts.arrow": (arrow({"amount": GOOD, "c": BAD}), 2, "c: is no UTF-8"),
    "texts.parquet": (parquet({"amount": GOOD, "c": BAD}), 2, "c: is no UTF-8"),
    "words.arrow": (
        arrow({"amount": GOOD, "c": pa.DictionaryArray.from_arrays(pa.array([0, 1]), BAD)}),
        2, "c: is no UTF-8",
    ),
    "list.arrow": (
        arrow({"amount": GOOD, "c": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), BAD)}),
        2, "c: is no UTF-8",
    ),
    "far.arrow": (arrow({"amount": GOOD, "t": FAR}), 2, "t: a time of the years 1 to 9999 expected"),
}  # fmt: skip
"""Files of two or more rows of which the first alone can be used: content, line and reason of the next."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", ROWS)
def test_door_names_row_that_cannot_be_read_and_keeps_the_others(
    tmp_path: Path, door: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, line, words = ROWS[name]
    path = tmp_path / name
    path.write_bytes(content)
    if door == "tables":
        assert tabled(path)["amount"] == [1]
        said = capsys.readouterr().err
    elif door == "compare":
        traffic = Traffic([path])
        assert [batch.arrow("inputs.amount").to_pylist() for batch in traffic] == [[1]]
        [one] = traffic.funnel()["lines"]
        said = f"{path}, line {one['line']} is left out: {one['reason']}"
    else:
        with pytest.raises(ConfigError) as refused:
            DOORS[door](path)
        said = str(refused.value)
    assert re.search(rf"line {line}\b.*{words}", said), said


MAPS = pa.array([{"k": [("a", [1])]}, None], pa.struct({"k": pa.map_(pa.string(), pa.list_(pa.int64()))}))
READ: dict[str, tuple[bytes, str, list[Any]]] = {
    "return.csv": (b"amount,city\r1,a\r2,b\r", "city", ["a", "b"]),
    "members.csv.gz": (gzip.compress(b"amount,city\n1,a\n") + gzip.compress(b"2,b\n"), "city", ["a", "b"]),
    "members.jsonl.gz": (
        gzip.compress(LINES.encode()) + gzip.compress(b'{"amount": 3, "city": "c"}'), "city", ["a", "b", "c"]
    ),
    "nul.csv": (b"amount,city\n1,a\0b\n2,c\n", "city", ["a\0b", "c"]),
    "large.jsonl": (b'{"n": 9007199254740993}\n{"n": 1}\n', "n", [2**53 + 1, 1]),
    "large.csv": (b"n,m\n18446744073709551615,1\n3,1\n", "n", ["18446744073709551615", "3"]),
    "prices.parquet": (
        parquet({"p": pa.array([decimal.Decimal("19.99"), decimal.Decimal("0.07")], pa.decimal128(12, 2))}),
        "p", [19.99, 0.07],
    ),
    "wide.arrow": (arrow({"p": pa.array([decimal.Decimal("0.1")], pa.decimal256(76, 38))}), "p", [0.1]),
    "small.arrow": (arrow({"a": pa.array([-1], pa.int8()), "b": pa.array([255], pa.uint8())}), "b", [255]),
    "bool8.arrow": (
        arrow({"a": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))}),
        "a", [True, False],
    ),
    "runs.arrow": (
        arrow({"a": pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["x"]))}),
        "a", ["x", "x"],
    ),
    "packed.feather": (arrow({"a": ["x"]}), "a", ["x"]),
    "stream.ipc": (arrow({"a": ["x"]}, is_stream=True), "a", ["x"]),
    "json.arrow": (
        arrow({"a": pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"b":1}']))}),
        "a", ['{"b":1}'],
    ),
}  # fmt: skip
"""Files that every door reads: content, a column and its values."""


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", READ)
def test_door_reads_odd_file_right(tmp_path: Path, door: str, name: str) -> None:
    content, column, values = READ[name]
    (tmp_path / name).write_bytes(content)
    assert DOORS[door](tmp_path / name)[column] == values


@pytest.mark.parametrize("door", ["replay", "tables", "cases", "compare"])
def test_door_reads_views_of_lists_maps_and_times(tmp_path: Path, door: str) -> None:
    path = tmp_path / "x.arrow"
    views = pa.array([["a"], None], pa.list_view(pa.string()))
    times = pa.array([0, 10**9], pa.timestamp("s", tz="Europe/Berlin"))
    path.write_bytes(arrow({"v": views, "m": MAPS, "t": times}))
    found = DOORS[door](path)
    assert found["v"] == [["a"], None]
    assert [at.timestamp() for at in found["t"]] == [0, 10**9]
    inner = found["m.k"] if "m.k" in found else [value and value["k"] for value in found["m"]]
    assert inner == [[("a", [1])], None]


NOTES: dict[str, tuple[bytes, str]] = {
    "zeros.csv": (b"zip,n\n01234,1\n00501,2\n", "column 'zip': '01234' is read as a number; --text zip"),
    "cut.ipc": (arrow({"x": [1]}, is_stream=True)[:-8], "the stream has no end: batches may be missing"),
    "spans.arrow": (
        arrow({"x": [1], "d": pa.array([[1]], pa.list_(pa.duration("s")))}),
        "column 'd' is left out: values of type",
    ),
    "mixed.jsonl": (b'{"x": 1, "n": 18446744073709551616}\n', "column 'n' is left out: its values have no"),
    "index.jsonl": (b'{"": 1, "x": 1}\n', "the first column is left out: it has no name"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTES)
def test_file_that_is_read_in_part_says_which(tmp_path: Path, name: str) -> None:
    content, words = NOTES[name]
    (tmp_path / name).write_bytes(content)
    left = LeftOut()
    assert len(read_table(tmp_path / name, TableOptions(), left)) > 0
    assert re.search(words, "".join(left.notes))


def test_profile_names_column_that_it_cannot_show(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(
        arrow({"x": GOOD, "m": MAPS, "raw": [b"a", b"b"], "none": pa.nulls(2)})
    )
    found = CliRunner().invoke(app, ["profile", "--json", "--file", str(tmp_path / "x.arrow")])
    named = re.findall(r"column 'inputs\.(\w+)' is not shown: values of type", found.stderr)
    assert sorted(named) == ["m", "none", "raw"]
    assert [one["name"] for one in json.loads(found.stdout)["columns"]] == ["inputs.x"]


def test_table_of_kserves_logger_names_row_that_is_no_call(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    kinds = ["org.kubeflow.serving.inference.request", "other", "org.kubeflow.serving.inference.response"]
    columns = {"id": ["1"] * 3, "req_type": kinds, "bytes": [b"{}"] * 3, "content_type": [""] * 3}
    columns["metadata"] = pa.array([[("a", ["b"])]] * 3, pa.map_(pa.string(), pa.list_(pa.string())))
    path.write_bytes(parquet(columns))
    left = LeftOut()
    (block,) = read_blocks(path, path.name, ReadOptions(Names(), CaptureNames()), left)
    assert (block.route, list(block.places)) == ("cloudevents", [1, 3])
    assert left.rows == [(2, "a call of KServe's logger expected: req_type, id and content_type")]


TIMES = pa.array([[0]], pa.list_(pa.timestamp("ns")))
FORMS: list[tuple[pa.Array, list[Any] | None]] = [
    (TIMES, None),
    (pa.array([[{"at": 0}]], pa.list_(pa.struct({"at": pa.date32()}))), None),
    (pa.array([[2**64 - 1]], pa.list_view(pa.uint64())), None),
    (pa.array([[decimal.Decimal("0.1")]], pa.large_list(pa.decimal128(9, 1))), [[0.1]]),
    (pa.array([[b"a", b"b"]], pa.list_(pa.binary_view(), 2)), [[b"a", b"b"]]),
    (pa.array([[("a", "b")]], pa.map_(pa.string(), pa.string_view())), [[("a", "b")]]),
    (pa.array([[["a"]]], pa.list_(pa.list_view(pa.string()))), [[["a"]]]),
    (pa.array([[1.5]], pa.list_(pa.float16())), [[1.5]]),
]


@pytest.mark.parametrize("door", ["replay", "tables", "cases"])
@pytest.mark.parametrize(("column", "values"), FORMS, ids=[str(column.type) for column, _ in FORMS])
def test_nested_column_has_plain_values_or_is_left_out(
    tmp_path: Path, door: str, column: pa.Array, values: list[Any] | None
) -> None:
    (tmp_path / "x.arrow").write_bytes(arrow({"x": [1], "c": column}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert DOORS[door](tmp_path / "x.arrow").get("c") == values


def test_array_without_a_form_in_an_archive_is_left_out_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(2), odd=np.array([{}, []], object), z=np.array([1j, 2j]))
    left = LeftOut()
    assert read_table(tmp_path / "x.npz", TableOptions(), left).to_pydict() == {"x": [0, 1]}
    assert [re.findall("'(.*?)'", note)[0] for note in left.notes] == ["odd", "z"]


def test_file_of_which_nothing_is_left_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{\n "amount": 1\n}')
    with pytest.raises(NothingToRead, match="no row; line 1 is left out: JSON expected"):
        tabled(path)
    assert "x.jsonl, line 2 is left out" in capsys.readouterr().err
    path.write_text('{"amount": 1}\n{"amount": "two"}\n')
    with pytest.raises(NothingToRead, match="no row; column 'amount' is left out"):
        tabled(path)


@pytest.mark.parametrize("quote", ['5,"text', '"text,5'])
def test_quote_that_opens_a_row_of_a_mebibyte_is_named_with_its_line(tmp_path: Path, quote: str) -> None:
    path = tmp_path / "x.csv"
    rows = [f"{n},{'text ' * 40}{n}" for n in range(12_000)]
    rows[100] = f"100,{quote}"
    path.write_text("n,text\n" + "\n".join(rows))
    with pytest.raises(ConfigError, match=r"x\.csv: a row behind line \d+ is over 1 MiB: is a quote open"):
        tabled(path)


LOGGED = {"ReqType": "org.kubeflow.serving.inference.request", "Bytes": "e30=", "ContentType": "", "Id": "1"}
STRANGE: list[tuple[Any, str]] = [
    ({"captureData": {"endpointInput": {"data": "1"}}, "eventMetadata": ["e"]}, "eventMetadata: an object"),
    ({"captureData": {"endpointInput": 1}}, "endpointInput: an object expected, got int"),
    ({"captureData": {"endpointInput": {"data": "1"}, "endpointOutput": "y"}}, "endpointOutput: an object"),
    (LOGGED | {"Metadata": [1]}, "metadata: an object expected, got list"),
    (LOGGED | {"Metadata": [["a", "b", "c"]]}, "metadata: an object expected, got list"),
]


@pytest.mark.parametrize("door", ["replay", "compare"])
@pytest.mark.parametrize(("item", "words"), STRANGE)
def test_strange_line_of_a_capture_is_named_and_the_next_one_read(
    tmp_path: Path, door: str, item: Any, words: str
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{json.dumps(item)}\n{{"inputs": {{"x": 1}}}}\n')
    if door == "compare":
        traffic = Traffic([path])
        assert sum(batch.rows for batch in traffic) == 1
        [(line, why)] = [(one["line"], one["reason"]) for one in traffic.funnel()["lines"]]
    else:
        left = LeftOut()
        (block,) = read_blocks(path, path.name, ReadOptions(Names(), CaptureNames()), left)
        [(line, why)] = left.rows
        assert list(block.places) == [2]
    assert line == 1
    assert words in why


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"inputs": {"x": 1}, "outputs": True}, "outputs: an object expected, got bool"),
        (LOGGED | {"Bytes": ["x"]}, "data_base64: base64 expected"),
    ],
)
def test_compare_names_strange_line_and_reads_the_next(tmp_path: Path, item: Any, words: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'{json.dumps(item)}\n{{"inputs": {{"x": 1}}}}\n')
    traffic = Traffic([path])
    assert sum(batch.rows for batch in traffic) == 1
    assert [words in one["reason"] for one in traffic.funnel()["lines"]] == [True]


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_compare_joins_what_kserves_logger_stored_as_json(tmp_path: Path, ending: str) -> None:
    calls = [logged("request", {"instances": [[1.0, 2.0]]}), logged("response", {"predictions": [1]})]
    lines = json.dumps(calls) if ending == "json" else "\n".join(map(json.dumps, calls))
    (tmp_path / f"calls.{ending}").write_text(lines)
    [batch] = Traffic([tmp_path / f"calls.{ending}"])
    assert batch.keys == ["5b3c"]
    [record] = batch.to_records()
    assert (record["inputs"], record["outputs"]) == ({"instances": [1.0, 2.0]}, {"label": 1})


def test_compare_reads_records_of_which_some_have_no_request(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"inputs": {"request": "hi", "x": 1}}\n{"inputs": {"x": 2}}\n')
    assert sum(batch.rows for batch in Traffic([path])) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"inputs": {"x": 1}, "outputs": true}', "outputs: an object expected, got bool"),
        ('{"inputs": {"x": 1}, "ts": "soon"}', "ts: ISO 8601 time with an offset expected"),
        ('{"x": 123456789012345678901234567890}', "x: values of one type expected"),
    ],
)
def test_cases_refuse_strange_values_by_their_columns(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "x.jsonl").write_text(line)
    with pytest.raises(OutriderError, match=words):
        DOORS["cases"](tmp_path / "x.jsonl")


def test_predictions_refuse_values_without_a_common_type_by_their_column(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"said": {"a": 1}}\n{"said": 5}\n')
    with pytest.raises(ConfigError, match=r"x\.jsonl: said: values of one type expected"):
        DOORS["predictions"](tmp_path / "x.jsonl")


@pytest.mark.parametrize("door", ["replay", "predictions", "tables"])
def test_field_that_stands_inside_a_part_and_beside_it_is_named(
    tmp_path: Path, door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"x": 1}\n{"inputs.x": 1, "inputs": {"x": 2}}\n')
    words = "line 2.*'inputs.x' stands twice, inside 'inputs' and beside it"
    if door == "tables":
        assert tabled(path) == {"x": [1]}
        assert re.search(words, capsys.readouterr().err)
        return
    with pytest.raises(ConfigError, match=words):
        DOORS[door](path)


@pytest.mark.parametrize("door", ["cases", "predictions"])
@pytest.mark.parametrize(("second", "found"), [("5", "int|5"), ("null", "None")])
def test_door_names_line_of_another_kind_of_value(tmp_path: Path, door: str, second: str, found: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f'\n{{"amount": 1}}\n\n{second}\n')
    with pytest.raises(ConfigError, match=rf"x\.jsonl.* line 4: .*got ({found})"):
        DOORS[door](path)


def replayed(path: Path) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    left = LeftOut()
    blocks = list(read_blocks(path, path.name, ReadOptions(Names(), CaptureNames()), left))
    rows = [block.rows.to_pylist() for block in blocks if isinstance(block.rows, pa.Table)]
    return [row for part in rows for row in part], left.rows


def test_replay_leaves_out_row_whose_time_is_none_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("x,ts\n1,2024-01-01\n2,2024-13-45\n3,\n4,soon\n")
    found, left = replayed(path)
    assert [row["id"] for row in found] == ["x.csv:2", "x.csv:4"]
    assert left == [(3, "ts: a time expected, got '2024-13-45'"), (5, "ts: a time expected, got 'soon'")]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3], "ts": [1.7e9, float("nan"), float("inf")]}), path)
    found, left = replayed(path)
    assert [row["ts"] and row["ts"].timestamp() for row in found] == [1.7e9, None]
    assert left == [(3, "ts: a time expected, got inf")]


def test_replay_keeps_zeros_of_ids_and_refuses_ids_that_are_no_texts(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,id,entity\n1,007,08\n")
    found, _ = replayed(tmp_path / "x.csv")
    assert (found[0]["id"], found[0]["entity"]) == ("007", "08")
    pq.write_table(pa.table({"x": [1], "id": [[1]]}), tmp_path / "x.parquet")
    with pytest.raises(ConfigError, match="column of id: texts or whole numbers expected, got list"):
        replayed(tmp_path / "x.parquet")


@given(st.lists(st.decimals(-(10**12), 10**12, places=4, allow_nan=False), min_size=1, max_size=20))
def test_decimals_become_the_nearest_floats(values: list[decimal.Decimal]) -> None:
    from outrider.data_files.arrow_files import _plain

    column = pa.array(values, pa.decimal128(20, 4))
    assert _plain(column).to_pylist() == [float(value) for value in values]
    assert _plain(pa.array([values])).to_pylist() == [[float(value) for value in values]]
    assert json.loads(json.dumps(_plain(column).to_pylist())) == [float(value) for value in values]


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_texts_of_a_csv_file_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([("one", "two"), *rows])
    kept = [row for row in rows if row != ("one", "two")]
    left = LeftOut()
    try:
        found = read_table(path, TableOptions(text=("one", "two")), left).to_pydict()
    except NothingToRead:
        found = {"one": [], "two": []}
    assert [*zip(found["one"], found["two"], strict=True)] == kept
    assert left.count == len(rows) - len(kept)
