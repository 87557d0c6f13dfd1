"""Redaction: what the detectors find, what stays, and columns of every type."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.assertions.library.personal import IBAN_LENGTHS
from outrider.dataops.redaction.columns import ColumnRedactor, ColumnRules, redacted_column, redacted_rows
from outrider.dataops.redaction.detectors import DETECTORS
from outrider.dataops.redaction.kinds import KINDS, Kind
from outrider.dataops.redaction.sieve import rows_with_hints
from outrider.dataops.redaction.texts import PLACEHOLDER, TextRedactor
from outrider.dataops.state.folder_secret import secret_of
from outrider.errors import OutriderError
from outrider.monitor.metrics.catalogue import CATALOGUE
from tests.requirements import require_data

KEY = b"k" * 32
ALL: tuple[Kind, ...] = ("email", "phone", "card", "iban", "token")
# Numbers that card networks publish for tests, and examples of the SWIFT IBAN registry.
CARDS = [
    "378282246310005",
    "371449635398431",
    "378734493671000",
    "30569309025904",
    "38520000023237",
    "6011111111111117",
    "6011000990139424",
    "3530111333300000",
    "3566002020360505",
    "5555555555554444",
    "5105105105105100",
    "4111111111111111",
    "4012888888881881",
    "4222222222222",
    "4242424242424242",
    "2223003122003222",
    "6200000000000005",
]
IBANS = [
    "AD1200012030200359100100",
    "AE070331234567890123456",
    "AT611904300234573201",
    "BE68539007547034",
    "BG80BNBG96611020345678",
    "CH9300762011623852957",
    "CY17002001280000001200527600",
    "CZ6508000000192000145399",
    "DE89370400440532013000",
    "DK5000400440116243",
    "EE382200221020145685",
    "ES9121000418450200051332",
    "FI2112345600000785",
    "FR1420041010050500013M02606",
    "GB29NWBK60161331926819",
    "GR1601101250000000012300695",
    "HR1210010051863000160",
    "HU42117730161111101800000000",
    "IE29AIBK93115212345678",
    "IS140159260076545510730339",
    "IT60X0542811101000000123456",
    "LT121000011101001000",
    "LU280019400644750000",
    "LV80BANK0000435195001",
    "MC5811222000010123456789030",
    "MT84MALT011000012345MTLCAST001S",
    "NL91ABNA0417164300",
    "NO9386011117947",
    "PL61109010140000071219812874",
    "PT50000201231234567890154",
    "RO49AAAA1B31007593840000",
    "SE4550000000058398257466",
    "SI56263300012039086",
    "SK3112000000198742637541",
    "TR330006100519786457841326",
    "BR1800360305000010009795493C1",
    "SA0380000000608010167519",
]
EMAILS = ["ann@shop.example", "a.b+c@sub.dom-ain.co.uk", "x_1@y.io", "O'Brien@example.com"]
PHONES = ["+49 89 1234567", "+44 20 7946 0018", "+1 (212) 555-0187", "(212) 555-0187", "212-555-0187"]
TOKENS = [
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "sk-proj-abcdefghijklmnopqrstuvwx", "ghp_" + "a1B2" * 9, "AKIAIOSFODNN7EXAMPLE", "AIza" + "Sy1-_" * 7,
    "xoxb-123456789012-abcdefghijkl", "glpat-abcdefghij1234567890", "dR4tY7uI0pA3sD6fG9hJ2kL5zX8cV1bN",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
]  # fmt: skip
VALUES: dict[Kind, list[str]] = {
    "email": EMAILS[:3], "phone": PHONES, "card": CARDS, "iban": IBANS, "token": TOKENS,
}  # fmt: skip


def found(text: str, kind: Kind) -> list[str]:
    return [text[slice(*span)] for span in DETECTORS[kind].spans(text)]


def grouped(number: str, size: int = 4, by: str = " ") -> str:
    return by.join(number[at : at + size] for at in range(0, len(number), size))


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind in ALL for value in VALUES[kind]])
@pytest.mark.parametrize("around", ["{}", "pay {} now", "({})", "a,{},b", "{}.", "x: {}; 12", "{} 2024 or 7"])
def test_published_values_are_found_among_words(kind: Kind, value: str, around: str) -> None:
    text = around.format(value)
    redacted = TextRedactor(KEY).text(text, [kind])
    assert value not in redacted
    assert PLACEHOLDER.search(redacted)
    assert [one.startswith(value) for one in found(text, kind)] == [True]
    batch = pa.array([text, None, "nothing"])
    assert redacted_column(batch, [kind], KEY, Counter()).to_pylist() == [redacted, None, "nothing"]


@given(st.sampled_from(CARDS), st.sampled_from([" ", "-", ""]), st.integers(0, 18), st.integers(1, 9))
def test_card_with_one_other_digit_is_none(card: str, by: str, at: int, more: int) -> None:
    at %= len(card)
    wrong = card[:at] + str((int(card[at]) + more) % 10) + card[at + 1 :]
    assert found(grouped(card, by=by), "card") == [grouped(card, by=by)]
    assert found(wrong, "card") == []


@given(st.sampled_from(IBANS), st.booleans(), st.data())
def test_iban_with_one_other_digit_is_none(iban: str, in_groups: bool, data: st.DataObject) -> None:
    digits = [at for at, sign in enumerate(iban) if sign.isdigit()]
    at = data.draw(st.sampled_from(digits))
    wrong = iban[:at] + str((int(iban[at]) + data.draw(st.integers(1, 9))) % 10) + iban[at + 1 :]
    said = grouped(iban) if in_groups else iban
    assert found(f"{said} is mine, from here", "iban") == [said]
    assert found(wrong, "iban") == []


def test_examples_cover_their_countries() -> None:
    assert all(len(iban) == IBAN_LENGTHS[iban[:2]] for iban in IBANS)


@given(st.text(min_size=1), st.sampled_from(KINDS))
def test_a_text_without_the_hint_holds_no_value(text: str, kind: Kind) -> None:
    assert rows_with_hints(pa.array([text]), [kind])[0] or found(text, kind) == []


@given(
    st.lists(st.one_of(st.text(max_size=8), st.sampled_from([v for k in ALL for v in VALUES[k]])), max_size=5)
)
def test_redaction_of_the_redacted_changes_nothing(parts: list[str]) -> None:
    text = " ".join(parts)
    once = TextRedactor(KEY).text(text, ALL)
    again = TextRedactor(b"another key")
    assert again.text(once, ALL) == once
    assert not again.counts


def test_equal_values_have_equal_placeholders_under_one_key_alone() -> None:
    same = ["4111 1111 1111 1111", "4111-1111-1111-1111", "4111111111111111"]
    assert len({TextRedactor(KEY).text(text, ["card"]) for text in same}) == 1
    assert TextRedactor(KEY).text("Ann@Shop.Example", ["email"]) == TextRedactor(KEY).text(
        "ann@shop.example", ["email"]
    )
    assert TextRedactor(KEY).text(same[0], ["card"]) != TextRedactor(b"other").text(same[0], ["card"])
    assert TextRedactor(KEY).text(same[0], ["card"]) != TextRedactor(KEY).text("4012888888881881", ["card"])


@pytest.mark.parametrize(
    "text",
    [
        "order 20261123-0001 at 10:15", "0.4539148803436467", "$4111111111111111", "v1.2.3-rc4",
        "550e8400-e29b-41d4-a716-446655440000", "d41d8cd98f00b204e9800998ecf8427e", "GB82WEST12345698765433",
        "see https://example.org/a/very/long/path/with-Many_Words2024and3", "me at example dot com", "@one",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
        "AABJRU5ErkJggg==",
        "the token of my esteem", "password: unknown to everybody",
    ],
)  # fmt: skip
def test_ordinary_texts_stay(text: str) -> None:
    assert TextRedactor(KEY).text(text, ALL) == text


def test_values_within_json_are_found_however_they_are_escaped() -> None:
    inner = json.dumps({"to": "ann@shop.example"})
    text = (
        r'{"a": "x\nann@shop.example", "b": "ann\u0040shop.example", "n": 4111111111111111, "f": 0.5, '
        rf'"call": {json.dumps(inner)}, "ann@shop.example": 1, "api_key": "hunter2hunter2", "k": "\ud800"}}'
    )
    redactor = TextRedactor(KEY)
    said = json.loads(redactor.text(text, ALL))
    assert redactor.counts == {"email": 4, "card": 1, "token": 1}
    mail = TextRedactor(KEY).placeholder("email", "ann@shop.example")
    assert said["a"] == f"x\n{mail}"
    assert said["b"] == mail
    assert json.loads(said["call"])["to"] == mail
    assert said["f"] == 0.5
    assert said["n"].startswith("<card:")
    assert said[mail] == 1
    assert redactor.text('{"a": 1,  "b": "c\\n"}', ALL) == '{"a": 1,  "b": "c\\n"}'


def test_columns_of_every_type_keep_type_nulls_and_length() -> None:
    mail = "ann@shop.example"
    columns = {
        "inputs.text": pa.array([mail, None, "x", mail]),
        "inputs.large": pa.array([mail, None, "x", mail], pa.large_string()),
        "inputs.coded": pa.array([mail, None, "x", mail]).dictionary_encode(),
        "inputs.list": pa.array([["x", mail], None, [], [mail]]),
        "inputs.struct": pa.array(
            [{"t": mail, "n": 4111111111111111}, None, {"t": None, "n": 7}, {"t": "x", "n": None}]
        ),
        "inputs.boxes": pa.array([[{"t": mail}, {"t": "x"}], None, [], [{"t": mail}]]),
        "inputs.number": pa.array([4111111111111111, None, 7, 4111111111111112]),
        "inputs.float": pa.array([0.5, None, 1.0, 2.0]),
        "inputs.__rest__": pa.array([json.dumps({"text2": mail, "n": 1}), None, "{}", "{}"]),
    }
    table = pa.RecordBatch.from_pydict(columns)
    redactor = ColumnRedactor(ColumnRules({"inputs.*": ALL}), KEY)
    twice = pa.concat_batches([table, table])
    mails, cards = [7, 0, 0, 5], [2, 0, 0, 0]
    for rows, part in (((0, 1, 2, 3), table), ((1, 2, 3), table.slice(1)), ((0, 1, 2, 3), twice.slice(4))):
        made, counts = redactor.table(part)
        assert made.schema == table.schema
        assert made.num_rows == part.num_rows
        assert mail not in str(made.to_pydict())
        assert "4111111111111111" not in str(made.to_pydict())
        made.validate(full=True)
        assert counts["email"] == sum(mails[row] for row in rows)
        assert counts["card"] == sum(cards[row] for row in rows)
        for name in ("inputs.text", "inputs.list", "inputs.struct", "inputs.boxes"):
            assert made.column(name).is_null().to_pylist() == part.column(name).is_null().to_pylist()
    assert made.column("inputs.number").to_pylist() == [None, None, 7, 4111111111111112]


def test_a_column_without_values_is_the_column_itself() -> None:
    table = pa.RecordBatch.from_pydict({"inputs.text": ["a", "b@", None], "inputs.l": [["a"], [], None]})
    made, counts = ColumnRedactor(ColumnRules({"inputs.*": ALL}), KEY).table(table)
    assert made is table
    assert not counts


def test_whole_values_are_pseudonyms() -> None:
    table = pa.RecordBatch.from_pydict({"entity": ["ann", "bob", "ann", None], "attrs.age": [1, 2, None, 3]})
    rules = ColumnRules({"entity": ["value"], "attrs.age": ["value"]})
    made, counts = ColumnRedactor(rules, KEY).table(table)
    one, two, three, none = made.column("entity").to_pylist()
    assert one == three != two
    assert none is None
    assert made.column("attrs.age").null_count == 4
    assert counts["value"] == 6
    again, more = ColumnRedactor(rules, KEY).table(made)
    assert again.equals(made)
    assert not more


def test_rows_with_placeholders_among_their_inputs_are_told() -> None:
    mark = TextRedactor(KEY).placeholder("email", "a@b.example")
    columns = {
        "inputs.a": pa.array([mark, "x", None, "x", "x"]),
        "inputs.l": pa.array([[], [{"t": "a"}, {"t": f"to {mark}"}], None, [], [{"t": "<email:1>"}]]),
        "outputs.o": pa.array([None, None, mark, None, None]),
    }
    batch = Batch.from_columns(columns, model="m")
    assert redacted_rows(batch).tolist() == [True, True, False, False, False]
    assert redacted_rows(batch.slice(1, 3)).tolist() == [True, False, False]


def test_the_secret_is_drawn_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    first = secret_of(tmp_path)
    assert len(first) == 32
    assert secret_of(tmp_path) == first
    assert (tmp_path / "redaction.key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["redaction.key"]
    (tmp_path / "redaction.key").write_bytes(b"short")
    with pytest.raises(OutriderError, match="32 bytes expected, got 5"):
        secret_of(tmp_path)


def test_the_catalogue_counts_every_kind() -> None:
    (spec,) = (spec for spec in CATALOGUE if spec.name == "outrider_redacted_values_total")
    assert tuple(spec.enums["kind"]) == KINDS


@pytest.mark.parametrize(
    ("data", "file", "most"), [("airline_tweets", "tweets", 40), ("clinc150", "data_full", 0)]
)
def test_real_texts_hold_few_values_and_all_of_their_form(data: str, file: str, most: int) -> None:
    """Of 14,640 tweets 35 hold an address or a number of a person or hotline; requests to a bank none."""
    texts = pq.read_table(require_data(data) / f"{file}.parquet", columns=["text"])["text"].combine_chunks()
    counts: Counter[Kind] = Counter()
    made = redacted_column(texts, ALL, KEY, counts)
    assert sum(counts.values()) <= most
    assert counts.keys() <= {"email", "phone"}
    slow = [text for text in texts.to_pylist() if any(found(text, kind) for kind in ALL)]
    assert sum(one != other for one, other in zip(texts.to_pylist(), made.to_pylist(), strict=True)) == len(
        slow
    )
