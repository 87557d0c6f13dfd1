"""Words of texts of any script, and that nothing which reads words is blind to scripts without spaces."""

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.assertions import Batch
from outrider.assertions.comparison.differences import Ruler, overlap
from outrider.assertions.comparison.losses import losses
from outrider.assertions.comparison.text_properties import with_text_properties
from outrider.assertions.drift import ShareCounter, ShareStreams, ShareWatch, WatchRule, column_shares
from outrider.assertions.library.personal import find_personal_data
from outrider.assertions.library.text import repetition
from outrider.assertions.profiling import Profile, ProfileLayout
from outrider.assertions.texts.words import UNSPACED, are_texts, has_unspaced, named, word_counts, words
from outrider.dataops.model_kinds.chat_model import class_of

HAN = (
    "的一是不了人我在有他这为之大来以个中上们到说国和地也子时道出而要于就下"
    "得可你年生自会那后能对着事其里所去行过家十用发天如然作方成者多日都"
)
MIXED = "aé İß\u0130 \t\n\x1c\u00a0\u3000。\uff0c!退款三十天內がプﾌﾟ㍿ﬁเชื่ฉ၀က\u1780¨\uff13🈁"
ENGLISH = [
    "where",
    "is",
    "my",
    "parcel",
    "and",
    "when",
    "will",
    "the",
    "refund",
    "reach",
    "bank",
    "thank",
    "you",
]


def chinese(rng: np.random.Generator, letters: int) -> str:
    return "".join(rng.choice(list(HAN), letters)) + "。"


# ---- the words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't  panic.", ["don't", "panic."]),
        ("\uff26ull\u3000ﬁle", ["full", "file"]),
        ("退款在3天内。", ["退款", "款在", "3", "天内", "。"]),
        ("ﾊﾟｿｺﾝ", ["パソ", "ソコ", "コン"]),
        ("天", ["天"]),
        ("ไปไหน", ["ไป", "ปไ", "ไห", "หน"]),
        ("서울에 가요", ["서울에", "가요"]),
        ("", []),
    ],
)
def test_words_stand_between_spaces_or_are_pairs_of_letters(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text(MIXED) | st.text())
def test_words_of_texts_that_nfkc_makes_equal_are_equal(text: str) -> None:
    assert (
        words(text)
        == words(unicodedata.normalize("NFKC", text))
        == words(unicodedata.normalize("NFKD", text))
    )


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_the_same_by_the_general_path(text: str) -> None:
    assert words(f"{text} é") == [*words(text), "é"]
    assert words(text) == text.casefold().split()


@given(st.lists(st.none() | st.text(MIXED) | st.text(st.characters(max_codepoint=127)), min_size=1))
@example(["\x1c退"])
def test_word_counts_are_those_of_each_text(texts: list[str | None]) -> None:
    expected = [None if text is None else len(words(text)) for text in texts]
    assert word_counts(pa.array(texts, pa.string())).to_pylist() == expected


def test_no_letter_takes_the_wrong_path_of_a_column() -> None:
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    plain = unicodedata.normalize("NFKC", "\0".join(letters)).split("\0")  # one call; NUL composes with none
    unspaced = re.compile(f"[{UNSPACED}]")
    for letter, form in zip(letters, plain, strict=True):
        if unspaced.search(form) and not unspaced.search(letter):
            assert has_unspaced(pa.array([letter])), f"U+{ord(letter):04X}"
        elif " " in form and not letter.isspace():
            assert word_counts(pa.array([f"a{letter}b"])).to_pylist() == [len(words(f"a{letter}b"))], letter


def test_columns_of_labels_are_no_texts_in_any_script() -> None:
    rng = np.random.default_rng(0)
    labels = ["パスワードのリセット", "สินเชื่อบ้าน", "退款申请处理中", "ကျေးဇူးတင်ပါတယ်"]
    assert not are_texts(pa.array(rng.choice(labels, 500)), least=5.0)
    assert are_texts(pa.array([chinese(rng, 10) for _ in range(500)]), least=5.0)
    assert are_texts(pa.array(["where is my parcel now"] * 9), least=5.0)
    assert not are_texts(pa.array(["my parcel", None]), least=5.0)
    assert not are_texts(pa.array([None], pa.string()), least=5.0)


# ---- what reads them -------------------------------------------------------------------------------------


def test_loss_of_one_other_letter_in_twenty_is_about_a_tenth() -> None:
    text = HAN[:20]
    assert losses("token_f1", [f"{text[:9]}退{text[10:]}"], [text])[0] == pytest.approx(0.105, abs=0.01)
    assert losses("token_f1", [HAN[20:40]], [text])[0] == 1.0
    assert losses("token_f1", ["\uff34he cat"], ["the CAT"])[0] == 0.0


def test_overlap_of_texts_without_spaces_is_that_of_their_letters() -> None:
    text = HAN[:40]
    assert overlap(text, f"{text[:9]}退{text[10:]}") > 0.9
    assert overlap(text, HAN[40:]) == 0.0


def live_drift(change: str, column: str) -> set[str]:
    """Features of a column of Chinese texts in which the watch of live traffic sees a change."""
    rng = np.random.default_rng(3)

    def hour(texts: list[str]) -> Batch:
        return Batch.from_columns({column: texts}, model="m")

    known = [hour([chinese(rng, int(rng.integers(8, 25))) for _ in range(50)]) for _ in range(24)]
    layout = ProfileLayout.fit(Batch.concat(known))
    shares = column_shares(layout, Profile.of(Batch.concat(known), layout).weights)
    counter, streams = ShareCounter.of(shares, layout), ShareStreams.of(shares)
    counts = [counter.count(Profile.of(each, layout).weights) for each in known]
    hits, seen = (np.transpose(each) for each in zip(*counts, strict=True))
    watch = ShareWatch(hits, seen, streams, WatchRule(0.01, 168))
    risen = np.zeros(len(shares), dtype=np.bool_)
    for _ in range(8):
        now = {
            "none": [chinese(rng, int(rng.integers(8, 25))) for _ in range(50)],
            "longer": [chinese(rng, 2 * int(rng.integers(8, 25))) for _ in range(50)],
            "english": [" ".join(rng.choice(ENGLISH, 4))[:20] for _ in range(50)],
        }[change]
        risen |= watch.look(*counter.count(Profile.of(hour(now), layout).weights))
    return {
        share.column.removeprefix(column) for share, is_risen in zip(shares, risen, strict=True) if is_risen
    }


@pytest.mark.parametrize(
    ("change", "seen"), [("none", None), ("longer", "#length"), ("english", "#language")]
)
@pytest.mark.parametrize("column", ["inputs.question", "outputs.answer"])
def test_live_watch_sees_chinese_texts_that_get_twice_as_long_or_english(
    change: str, seen: str | None, column: str
) -> None:
    found = live_drift(change, column)
    assert seen in found if seen else not found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("抱歉\uff0c我无法提供这方面的帮助。", "refused"),
        ("作为一个AI\uff0c我没有这样的功能。", "refused"),
        ("您不能在周末退货。", "answered"),
        ("申し訳ございませんが、お答えできません。", "refused"),
        ("返金は三日以内に対応できます。", "answered"),
        ("ขออภัยค่ะ ฉันไม่สามารถช่วยได้", "refused"),
        ("죄송하지만 도와드릴 수 없습니다.", "refused"),
        ("배송은 내일 도착합니다.", "answered"),
    ],
)
def test_refusals_are_found_in_scripts_without_latin_letters(text: str, expected: str) -> None:
    answers = Batch.from_columns({"outputs.text": [text]}, model="m")
    found = with_text_properties(answers, Ruler("text", is_text=True))
    assert found.column("outputs.text_refusal").tolist() == [expected]


def test_length_property_grows_with_the_letters_of_a_script_without_spaces() -> None:
    answers = Batch.from_columns({"outputs.text": [HAN[:20] * 20, HAN[:20]]}, model="m")
    long, short = with_text_properties(answers, Ruler("text", is_text=True)).column("outputs.text_length")
    assert long - short > 2.0


@pytest.mark.parametrize(
    ("text", "names", "found"),
    [
        ("申请已批准,30天内", ("批准", "拒绝"), ["批准"]),
        ("这不是垃圾邮件。", ("垃圾邮件", "不是垃圾邮件"), ["不是垃圾邮件"]),
        ("ＡＰＰＲＯＶＥＤ了", ("approved", "rejected"), ["approved"]),
        ("unapproved, preapproved", ("approved", ""), []),
        ("rejected or approved", ("approved", "rejected"), ["approved", "rejected"]),
    ],
)
def test_names_are_found_as_whole_words_of_any_script(
    text: str, names: tuple[str, ...], found: list[str]
) -> None:
    assert named(text, names) == found


def test_a_class_is_found_in_a_chat_answer_without_spaces() -> None:
    assert class_of("这是垃圾邮件。", ("垃圾邮件", "正常邮件")) == "垃圾邮件"
    assert class_of("非垃圾。", ("垃圾", "非垃圾")) == "非垃圾"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("card", "卡号4111111111111111到期"),
        ("email", "请写信a.b@example.org谢谢"),
        ("iban", "账号DE89370400440532013000请"),
        ("ip", "地址8.8.8.8的"),
        ("phone", "电话+49 30 1234567谢"),
        ("ssn", "号码123-45-6789的"),
    ],
)
def test_personal_data_is_found_beside_letters_without_spaces(kind: str, text: str) -> None:
    assert [found for found, _ in find_personal_data(text)] == [kind]


def test_repetition_is_seen_in_chinese() -> None:
    rng = np.random.default_rng(1)
    answers = ["我不知道。" * 6, "很抱歉给您带来不便" * 5, chinese(rng, 60)]
    batch = Batch.from_columns({"outputs.answer": answers}, model="m")
    assert (repetition().severities(batch) > 0.0).tolist() == [True, True, False]
