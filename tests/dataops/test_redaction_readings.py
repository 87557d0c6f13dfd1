"""Redaction of values in other bytes than their own: separators, escapes, nesting; and what is left alone."""

import datetime as dt
import json
import random
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.dataops.payloads.columns import Payload, payload_array
from outrider.dataops.redaction.columns import ColumnRedactor, ColumnRules, redacted_column
from outrider.dataops.redaction.kinds import Kind
from outrider.dataops.redaction.readings import readings
from outrider.dataops.redaction.sieve import rows_with_hints
from outrider.dataops.redaction.texts import PLACEHOLDER, TextRedactor
from outrider.dataops.uploads.job_tokens import PREFIX

from .test_redaction import ALL, CARDS, EMAILS, IBANS, KEY, PHONES, TOKENS

CARD, MAIL = "4111111111111111", "ann@shop.example"
OWN_KEY, JOB_TOKEN = "or_" + "aB3_-" * 8 + "xy-", PREFIX + "aB3_-" * 8 + "xyz"
SECRETS = [*(token for token in TOKENS if "\n" not in token), OWN_KEY, JOB_TOKEN]
# American Express is printed 4-6-5, Diners Club 4-6-4.
PRINTED = {13: (4, 3, 3, 3), 14: (4, 6, 4), 15: (4, 6, 5), 16: (4, 4, 4, 4)}
SEPARATORS = [
    "", " ", "-", "\u00a0", "\u202f", "\u2009", "\u3000", "  ", " - ", ".", "\t", "/", "_", "+", "\n",
    "\r\n", "\u00b7", "\u2022", "\u2011", "\u2013", "\u2212", "\uff0d", "\u200b", "\ufeff", "\u00ad",
    " \u200b", "\u2060-",
]  # fmt: skip
PHONE_SEPARATORS = [" ", "-", ".", "/", "\u00a0", "\u2011", "  ", "\t", "\u200b"]


def printed(card: str, by: str) -> str:
    groups, at = [], 0
    for length in PRINTED[len(card)]:
        groups.append(card[at : at + length])
        at += length
    return by.join(groups)


def by_fours(iban: str, by: str) -> str:
    return by.join(iban[at : at + 4] for at in range(0, len(iban), 4))


def full_width(text: str) -> str:
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


def arabic(text: str) -> str:
    return text.translate({ord("0") + n: 0x0660 + n for n in range(10)})


def parted(text: str) -> str:
    return "\u200b".join(text)


NUMBERS = st.one_of(
    st.builds(printed, st.sampled_from(CARDS), st.sampled_from(SEPARATORS)),
    st.builds(by_fours, st.sampled_from(IBANS), st.sampled_from(SEPARATORS)),
    st.builds(
        lambda phone, by: phone.replace(" ", by),
        st.sampled_from(PHONES[:3]),
        st.sampled_from(PHONE_SEPARATORS),
    ),
    st.sampled_from(PHONES),
)
WORDS = st.sampled_from([*EMAILS, *SECRETS, f"key={OWN_KEY}", f"https://a.example/?k={JOB_TOKEN}"])
VALUES = st.one_of(
    st.builds(lambda sign, value: sign(value), st.sampled_from([str, full_width, arabic, parted]), NUMBERS),
    st.builds(lambda sign, value: sign(value), st.sampled_from([str, full_width, parted]), WORDS),
)


def json_escaped(text: str) -> str:
    return json.dumps(text)[1:-1]


def json_plain(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def json_all(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def percent_all(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def entities(text: str) -> str:
    return "".join(sign if sign.isalnum() and sign.isascii() else f"&#{ord(sign)};" for sign in text)


def entities_all(text: str) -> str:
    return "".join(f"&#x{ord(sign):x};" for sign in text)


def entities_by_name(text: str) -> str:
    names = {
        " ": "thinsp",
        "-": "ndash",
        ".": "period",
        "@": "commat",
        "(": "lpar",
        ")": "rpar",
        "_": "lowbar",
    }
    return "".join(f"&{names[sign]};" if sign in names else sign for sign in text)


def entities_twice(text: str) -> str:
    return entities(text).replace("&", "&amp;")


TEXT_ENCODINGS: list[Callable[[str], str]] = [
    str, quote, quote_plus, percent_all, entities, entities_all, entities_twice, json_all, json_escaped,
    ascii,
]  # fmt: skip
JSON_ENCODINGS: list[Callable[[str], str]] = [json_escaped, json_plain, json_all]
Wrap = Callable[[str, Callable[[str], str]], str]
JSON: list[Wrap] = [
    lambda text, said: f'{{"a": "{said(text)}"}}',
    lambda text, said: f'[1, ["{said(text)}", null], 0.4539148803436467]',
    lambda text, said: f'{{"a": "{said(text)}", "a": "x"}}',
    lambda text, said: f'{{"a": "x", "a": {{"b": ["{said(text)}"]}}, "a": 7}}',
    lambda text, said: f'{{"{said(text)}": 1.10}}',
    lambda text, said: f'"{said("to " + text)}"',
    lambda text, said: f'\ufeff{{"a": "x\\n{said(text)}\\n"}}',
    lambda text, said: f'{{"a": 1}}\n{{"a": "{said(text)}"}}\n{{"b": [2]}}',
    lambda text, said: f'event: x\ndata: {{"delta": "{said(text)}"}}\n\ndata: [DONE]\n',
    lambda text, said: f'\x1e{{"a": "{said(text)}"}}\n',
]  # fmt: skip
TEXT: list[Wrap] = [
    lambda text, said: said(text),
    lambda text, said: f"pay {said(text)} now",
    lambda text, said: f'```json\n{{\n  "a": "{said(text)}"\n}}\n```',
    lambda text, said: f'{{"a": "{said(text)}", "b": [1, 2',
    lambda text, said: f"{{'a': '{said(text)}'}}",
    lambda text, said: f"a,b\n1,{said(text)},2\n",
    lambda text, said: f'data: {{"a": "{said(text)}",\ndata: "b": 1}}\n\n',
    lambda text, said: f'{{"a": NaN, "b": "{said(text)}"}}',
    lambda text, said: f"**{said(text)}** | (`{said(text)}`)",
    lambda text, said: f"\x1b[1;31m{said(text)}\x1b[0m ok",
]  # fmt: skip


def canonical(text: str) -> str:
    return re.sub(r"[^0-9a-z@_]", "", text.lower())


def holds(text: str, value: str) -> bool:
    """Whether a text holds a value, as it is or in any of its readings, whatever stands between its signs."""
    wanted = canonical(next(iter([*readings(value)][::-1])).folded().rpartition("=")[2])
    left = PLACEHOLDER.sub(";", text)
    return value in left or any(wanted in canonical(reading.folded()) for reading in readings(left))


def redacted(text: str) -> str:
    """Text as a column of it is written: through the sieve too."""
    column = pa.array(["AB1", text, "word " * 300])
    made, alone = (redacted_column(given, ALL, KEY, Counter()).to_pylist() for given in (column, column[1:2]))
    assert made[1:2] == alone
    return str(made[1])


@pytest.mark.parametrize(
    ("text", "is_hint"),
    [
        ("a eyJa", True), ("a EYJa", False), ("xoxb", True), ("to SG.", True), ("ya29.", True),
        ("whsec_a/b+", True), ("BEGIN PRIVATE KEY", True), ("Bearer abcdefghijklmnop", True),
        ("basic questions of taste", False), ("api_KEY = x", True), ("the key is", False),
        ("x: monkeys", False), ('\\"Secret\\" \\n : 1', True), ("passwd=1", True), ("y", False),
        ("xo", False), ("K:", False), ("ey", False), ("J", False),
    ],
)  # fmt: skip
def test_the_sieve_lets_names_of_secrets_pass_where_a_secret_may_follow(text: str, is_hint: bool) -> None:
    assert rows_with_hints(pa.array([text]), ["token"]).tolist() == [is_hint]


ROWS = st.lists(
    st.one_of(
        st.none(),
        st.sampled_from(
            [
                "",
                "4",
                "12 34",
                "@",
                "@b",
                "a",
                "\\",
                "\\n",
                "n4",
                "GB",
                "82",
                "api_key",
                ": x",
                "a" * 19,
                "%",
                "4f",
            ]
        ),
        VALUES,
        st.builds(json_escaped, VALUES),
        st.text(max_size=9),
    ),
    min_size=1,
    max_size=9,
)


@pytest.mark.costly("drawn texts of every alphabet")
@given(ROWS, st.sampled_from([*ALL, "value"]), st.integers(0, 3))
def test_a_row_passes_the_sieve_whatever_stands_beside_it(
    rows: list[str | None], kind: Kind, start: int
) -> None:
    found = rows_with_hints(pa.array(rows, pa.string())[start:], [kind]).tolist()
    assert found == [rows_with_hints(pa.array([row], pa.string()), [kind])[0] for row in rows[start:]]
    assert found == rows_with_hints(pa.array(rows, pa.large_string())[start:], [kind]).tolist()


@settings(max_examples=150)
@given(
    VALUES,
    st.sampled_from(JSON),
    st.sampled_from(JSON_ENCODINGS),
    st.lists(st.sampled_from(JSON), max_size=2),
)
def test_redaction_leaves_no_value_in_json_however_it_is_nested(
    value: str, wrap: Wrap, said: Callable[[str], str], outer: list[Wrap]
) -> None:
    text = wrap(value, said)
    for each in outer:
        text = each(text, json_escaped)
    assert holds(text, value)
    made = redacted(text)
    assert not holds(made, value), made
    assert PLACEHOLDER.search(made)
    if wrap in JSON[:6] and not set(outer) - set(JSON[:6]):
        json.loads(made)  # JSON stays JSON


@pytest.mark.parametrize(
    "around", ["卡号{}。谢谢", "请把{}转账", "カード番号は{}です", "карта{}конец", "บัตร{}ครับ"]
)
def test_redaction_finds_values_that_no_space_parts_from_words_of_other_scripts(around: str) -> None:
    for value in (CARD, printed(CARD, " "), *IBANS, *PHONES, *EMAILS):
        assert not holds(redacted(around.format(value)), value), value


@pytest.mark.parametrize(
    "text", ["(212)\t555-0123", "212\u00b7555\u00b70123", "(212).555.0123", MAIL, PHONES[0]]
)
def test_redaction_finds_values_in_tabs_dots_and_named_entities(text: str) -> None:
    for written in (text, entities_by_name(text)):
        assert not holds(redacted(f"call {written} now"), text), written


@pytest.mark.parametrize("by", ["|", ",", ":", ";", ", ", " | "])
def test_redaction_finds_cards_and_ibans_in_groups_apart_by_the_marks_of_tables(by: str) -> None:
    for value in [
        *(printed(card, by) for card in CARDS if len(card) in PRINTED),
        *(by_fours(iban, by) for iban in IBANS),
    ]:
        for around in ("{}", "pay {} now", '{{"a": "{}"}}', "card: {};", "a\n{}\nb"):
            assert not holds(redacted(around.format(value)), value), around.format(value)


@pytest.mark.parametrize("by", ["|", ",", ":", ";", ", ", " | "])
def test_redaction_leaves_rows_of_tables_as_they_are(by: str) -> None:
    row = printed(CARD, by)
    for text in (
        f"1{by}{row}{by}2",
        f"{row}{by}5105",
        f"12{by}{row}",
        row.replace("1111", "11.11"),
        row.replace(by, "-", 1),
    ):
        assert redacted(text) == text


@settings(max_examples=150)
@given(VALUES, st.sampled_from(TEXT), st.sampled_from(TEXT_ENCODINGS), st.integers(0, 2))
def test_redaction_leaves_no_value_in_a_text_that_is_no_json(
    value: str, wrap: Wrap, said: Callable[[str], str], deep: int
) -> None:
    text = wrap(value, said)
    for _ in range(deep):
        text = f"x {json.dumps(text)} y"
    assert holds(text, value)
    made = redacted(text)
    assert not holds(made, value), made
    assert PLACEHOLDER.search(made)


@pytest.mark.parametrize("sign", [full_width, arabic, parted])
@pytest.mark.parametrize("by", SEPARATORS)
def test_equal_values_have_equal_placeholders_in_all_their_forms(by: str, sign: Callable[[str], str]) -> None:
    plain = redacted(CARD)
    assert redacted(printed(CARD, by)) == redacted(sign(CARD)) == redacted(json_all(CARD)) == plain
    assert json.loads(redacted('{"a": 4.111111111111111e15, "a": 4111111111111111.0}'))["a"] == plain
    assert redacted(f"x\tmail={MAIL}").endswith(redacted(MAIL.upper()))


@given(st.text(), st.sampled_from([str, json_all, percent_all, full_width, parted]), VALUES)
def test_a_text_without_the_hint_holds_no_value_in_any_reading(
    text: str, said: Callable[[str], str], value: str
) -> None:
    whole = f"{said(text)} {said(value)}" if text.isprintable() else said(text)
    assert rows_with_hints(pa.array([whole]), ALL)[0] or TextRedactor(KEY).text(whole, ALL) == whole


@given(st.text(alphabet=st.sampled_from(list('\\"u0034nrt%4&#;x1a {}[]:,-.@\u200b\uff14é')), max_size=60))
def test_redaction_of_any_text_changes_nothing_where_it_finds_nothing(text: str) -> None:
    redactor = TextRedactor(KEY)
    made = redactor.text(text, ALL)
    assert (made == text) == (not redactor.counts)
    for reading in readings(text):
        for at, sign in enumerate(reading.text):
            start, end = reading.place(at, at + 1)
            assert 0 <= start < end <= len(text)
            assert text[start:end] == sign or end - start > 1


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('{"n": 4111111111111111, "a": [1.10, 1E5, 4.111111111111111e15]}', '{"n": C, "a": [1.10, 1E5, C]}'),
        ('{"a": "x\\nann@shop.example", "a" :  4111111111111111.0}', '{"a": "x\\nM", "a" :  C}'),
        ('x \\"card\\": 4111111111111111, "b": 4111111111111111}', 'x \\"card\\": \\C\\, "b": C}'),
        ("C:\\new\\4111111111111111 and x\\tann@shop.example", "C:\\new\\C and x\\tM"),
        ("-ann@shop.example\n_x@shop.example", "-M\nM"),
        ('{"phone": "4989123456", "a": {"userPhone": 4989123456.0}}', '{"phone": P, "a": {"userPhone": P}}'),
        ("tel: 4989123456; n: 4989123456", "tel: P; n: 4989123456"),
        ("a,b\n1,4111111111111111.0,x\n2,4.111111111111111e+15,y", "a,b\n1,C,x\n2,C,y"),
    ],
)  # fmt: skip
def test_redaction_replaces_the_value_and_no_byte_beside_it(text: str, made: str) -> None:
    found = re.sub(
        r"<(\w)\w+:[0-9a-f]{16}>", lambda kind: {"c": "C", "e": "M", "p": "P"}[kind[1]], redacted(text)
    )
    bare = re.sub(r'(?<=[\[:, ])"([CMP])"', r"\1", found)
    assert bare.replace('\\"C\\"', "\\C\\") == made


@pytest.mark.parametrize(
    "text",
    [
        "order 20261123-0001 at 10:15", "0.4111111111111111", "-0.4111111111111111e-3", "6.02214076e23",
        "$4111111111111111", "v4.11.1111-rc1 4.111.111", "550e8400-e29b-41d4-a716-446655440000",
        "2026-11-28T09:15:04.123456789Z",
        "1764321304123 1764321304123456 1764321304123456789",
        '{"ts": 1764321304123456789, "n": 4.2e15, "m": 4200000000000000.0}',
        "4111\t1111\t1111\t1111\t2222\t3333",
        "4111.1111.1111.1111.1111", "12.0.4.1 10.0.0.255:8080", "100%25 off &amp; more",
        "telemetry: 4989123456",
        '{"microphone": 4989123456, "iPhone": 4989123456}', "3.14159265358979323846264338327950288",
        "5.0  12.5  41.1  11.1  11.1", "C:\\users\\new\\table",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "https://example.org/search?q=caf%C3%A9+au+lait&page=2",
        '{"a": "caf\\u00e9 \\u2013 10\\u00a0\\u20ac"}',
    ],
)  # fmt: skip
def test_redaction_leaves_ordinary_texts_as_they_are(text: str) -> None:
    assert redacted(text) == text


@settings(max_examples=60)
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(0, 2**32).map(lambda seed: uuid.UUID(int=random.Random(seed).getrandbits(128), version=4)),
    st.integers(600_000_000, 4_000_000_000),
    st.text("0123456789.-", max_size=11),
)
@example(4.1e15, uuid.UUID(int=0), 1_764_321_304, "4.11.1")
def test_redaction_leaves_measures_times_and_ids_as_they_are(
    number: float, own: uuid.UUID, at_s: int, version: str
) -> None:
    measure = number if number != int(number) else number % 10**10
    at = dt.datetime.fromtimestamp(at_s, dt.UTC).isoformat()
    said = f"{measure!r} {own} {at} {at_s * 10**6} v{version}"
    assert TextRedactor(KEY).text(said, ["email", "card", "iban", "token"]) == said
    assert TextRedactor(KEY).text(json.dumps({"x": measure, "t": at_s}), ALL) == json.dumps(
        {"x": measure, "t": at_s}
    )


def test_a_number_is_a_card_by_issuer_length_and_luhn_alone() -> None:
    """Of random numbers of 16 digits 3 % pass as cards, of other lengths less; of times and decimals none."""
    draw = np.random.default_rng(7)
    numbers = draw.integers(10**15, 10**16, 100_000)
    counts: Counter[Kind] = Counter()
    made = redacted_column(pa.array(numbers), ["card"], KEY, counts)
    assert made.null_count == counts["card"]
    assert 0.028 < made.null_count / len(numbers) < 0.032
    now = 1_764_321_304
    for column in (
        pa.array(now * 10**6 + draw.integers(0, 10**12, 10_000)),
        pa.array((now + draw.random(10_000)) * 1e9),
        pa.array(draw.random(10_000) * 1e13),
        pa.array(draw.integers(1, 10**6, 10_000) * 10_000.0 * 1e6),
        pa.array(numbers.astype(np.float32)),
    ):
        assert redacted_column(column, ALL, KEY, counts) is column


def test_numbers_of_cards_and_phones_become_null_in_columns_of_every_type() -> None:
    card, phone = int(CARD), 4989123456
    table = pa.RecordBatch.from_pydict(
        {
            "inputs.f": pa.array([float(card), None, 0.4111111111111111, 4.2e15]),
            "inputs.n": pa.array([phone, 7, None, phone]),
            "inputs.phone": pa.array([phone, 7, None, 20_261_128]),
            "inputs.contact": pa.array([float(phone), 1.5, None, 1e15]),
            "inputs.tel": pa.array([str(phone), "7", None, "089 1234567"]),
            "inputs.boxes": pa.array([[{"mobile": phone, "x": phone}], [], None, [{"mobile": 1, "x": card}]]),
        }
    )
    rules = ColumnRules({"inputs.*": ALL, "inputs.contact": ["phone"]})
    made, counts = ColumnRedactor(rules, KEY).table(table)
    assert made.schema == table.schema
    made.validate(full=True)
    assert made.column("inputs.f").to_pylist() == [None, None, 0.4111111111111111, 4.2e15]
    assert made.column("inputs.n").to_pylist() == [phone, 7, None, phone]
    assert made.column("inputs.phone").to_pylist() == [None, 7, None, None]
    assert made.column("inputs.contact").to_pylist() == [None, 1.5, None, 1e15]
    assert [text and text[:7] for text in made.column("inputs.tel").to_pylist()] == [
        "<phone:",
        "7",
        None,
        "<phone:",
    ]
    assert made.column("inputs.boxes").to_pylist() == [
        [{"mobile": None, "x": phone}], [], None, [{"mobile": 1, "x": None}],
    ]  # fmt: skip
    assert counts == {"card": 2, "phone": 6}
    assert np.float64(card).tobytes() not in made.serialize().to_pybytes()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_payloads_are_redacted_in_the_encoding_that_they_are_in(encoding: str) -> None:
    text = f"été {printed(CARD, chr(0xA0))} {MAIL}\n"
    image = b"\x89PNG\r\n\x00\xff" + bytes(range(256))
    other = [Payload(image), None, Payload(uri=f"s3://b/{MAIL}/1.png")]
    column = payload_array([Payload(text.encode(encoding)), *other])
    made = redacted_column(column, ALL, KEY, Counter()).to_pylist()
    said = made[0]["bytes"].decode(encoding)
    assert re.fullmatch(r"été <card:\w{16}> <email:\w{16}>\n", said)
    assert made[1]["bytes"] == image
    assert made[2] is None
    assert re.fullmatch(r"s3://b/<email:\w{16}>/1.png", made[3]["uri"])


def test_a_whole_value_is_null_where_no_placeholder_fits() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 3), np.float32))
    counts: Counter[Kind] = Counter()
    for column in (
        tensors,
        payload_array([Payload(b"x", "s3://b/1", "0" * 64), None]),
        pa.array([1.5, None]),
    ):
        made = redacted_column(column, ["value"], KEY, counts)
        assert made.type == column.type
        assert made.null_count == 2
    assert counts["value"] == 4


@pytest.mark.parametrize(
    "rest",
    ['{"a": "CARD", "a": "x"}', '{"b": {"CARD": 1}}', '{"b": {"a": "CARD", "a": 1}}', 'data: {"a": "CARD"}'],
)
def test_rare_fields_with_repeated_members_and_named_by_values_hold_none(rest: str) -> None:
    table = pa.RecordBatch.from_pydict({"inputs.__rest__": [rest.replace("CARD", CARD)]})
    made, counts = ColumnRedactor(ColumnRules({"inputs.*": ["card"]}), KEY).table(table)
    assert CARD not in made.column(0)[0].as_py()
    assert counts == {"card": 1}


@pytest.mark.parametrize("before", [0, 996, 1990, 1999, 5003])
def test_a_card_is_found_wherever_it_stands_in_a_long_run_of_digits(before: int) -> None:
    text = "7 " * before + "4111 1111 1111 1111" + " 7" * 1500
    assert "1111" not in redacted(text)


def nested_objects(n: int) -> str:
    return '{"a":' * (n // 6) + f'"{CARD}"' + "}" * (n // 6)


def nested_strings(n: int) -> str:
    text, depth = CARD, 1
    while len(text) < n:
        text = "[" + ",".join(['"\\u005cu0022' + "\\u005c" * depth + "u0034"] * (n // 8)) + "]"
        depth += 1
    return text


HOSTILE: dict[str, Callable[[int], str]] = {
    "digits": lambda n: "4" * n,
    "groups": lambda n: "4 " * (n // 2) + "1x",
    "dotted": lambda n: "4.1" * (n // 3) + "x",
    "spaces": lambda n: " " * n + "4",
    "phones": lambda n: "+1 2" * (n // 4),
    "assigned": lambda n: "token=" * (n // 6),
    "ats": lambda n: "a@" * (n // 2),
    "labels": lambda n: "a@" + "b." * (n // 2),
    "addresses": lambda n: f"{MAIL} " * (n // 17),
    "keys": lambda n: "eyJ" + "aaaaaaaa." * (n // 9),
    "private": lambda n: "-----BEGIN PRIVATE KEY-----" * (n // 27),
    "ibans": lambda n: "DE89" * (n // 4),
    "backslashes": lambda n: "\\" * n,
    "escaped backslashes": lambda n: "\\u005c" + "u005c" * (n // 5),
    "percents": lambda n: "%25" * (n // 3),
    "entities": lambda n: "&#38;#38;" * (n // 9),
    "unseen": lambda n: "4\u200b" * (n // 2),
    "full width": lambda n: "\uff14 " * (n // 2),
    "repeated members": lambda n: "{" + ",".join([f'"a":"{CARD}"'] * (n // 23)) + "}",
    "objects": nested_objects,
    "brackets": lambda n: "[" * n,
    "escaped quotes": lambda n: '["' + '\\"' * (n // 2) + '"]',
    "nested strings": nested_strings,
    "lines": lambda n: '{"a":1}\n' * (n // 8),
    "broken lines": lambda n: "data: [\n" * (n // 8),
    "quotes": lambda n: '"' * n,
    "placeholders": lambda n: "<card:0123456789abcdef>" * (n // 23),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_redaction_of_hostile_texts_takes_work_in_proportion_to_their_length(name: str) -> None:
    def work(length: int) -> float:
        text = HOSTILE[name](length)
        began = time.process_time()
        TextRedactor(KEY).text(text, ALL)
        return (time.process_time() - began) / len(text)

    small, large = (min(work(length) for _ in range(2)) for length in (5_000, 40_000))
    assert large < 4 * small  # eight times where it is quadratic


def test_redaction_of_random_bytes_finds_texts_alone() -> None:
    data = random.Random(5).randbytes(1_000_000)
    column = payload_array([Payload(data)])
    assert redacted_column(column, ALL, KEY, Counter()) is column
    planted = payload_array([Payload(data[:500] + b"\0by " + MAIL.encode() + b"\0" + data[500:])])
    (made,) = redacted_column(planted, ALL, KEY, Counter()).to_pylist()
    assert re.fullmatch(rb"\0by <email:\w{16}>\0", made["bytes"][500 : -len(data) + 500])
