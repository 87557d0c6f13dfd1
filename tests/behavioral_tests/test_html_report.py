"""The HTML report: complete in itself, and safe whatever a model says."""

import base64
import hashlib
import io
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import INV, MFT, Outcome, Suite, expect, perturb
from outrider.behavioral_tests.case_values import image_of, is_tensor
from outrider.behavioral_tests.compare import compare_models
from outrider.behavioral_tests.html_report import html_report
from outrider.behavioral_tests.outcome import Example, Measure
from tests.requirements import require_program

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror='alert(2)'> '\"><svg onload=alert(3)> {{ 7 * 7 }}"
)


class Page(HTMLParser):
    """Elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def outcome(name: str = "test_x", *, failures: int = 1, examples: tuple[Example, ...] = ()) -> Outcome:
    return Outcome(
        name=name, kind="INV", capability="form", description="", cases=2, failures=failures,
        not_applicable=0, tolerance=0.0, rate=failures / 2, low=0.1, high=0.9, examples=examples,
    )  # fmt: skip


def hostile() -> Outcome:
    example = Example(
        HOSTILE, 1.0, {HOSTILE: HOSTILE, "text": f"a {HOSTILE} b"}, {"label": HOSTILE, "list": [HOSTILE]},
        {HOSTILE: "x", "text": "a b"}, {"label": "\ud800 lone"}, {"label": HOSTILE},
    )  # fmt: skip
    return Outcome(
        name=HOSTILE, kind="INV", capability=HOSTILE, description=HOSTILE, cases=2, failures=1,
        not_applicable=0, tolerance=0.0, rate=0.5, low=0.1, high=0.9, examples=(example,), suite=HOSTILE,
        measures=(Measure(HOSTILE, 0.3, 0.2, 0.4, 9, HOSTILE), Measure("empty", float("nan"), 0.0, 1.0, 0)),
    )  # fmt: skip


def images(shape: tuple[int, ...], rows: int = 2) -> Batch:
    values = np.random.default_rng(0).random((rows, *shape))
    return Batch.from_columns({"inputs.image": values}, model="m", rows=rows)


def darker(batch: Batch) -> Outcome:
    test = INV(
        name="test_dark", cases=batch, perturb=perturb.column("image", lambda x, rng: 0.5 * x),
        expect=expect.same("mean"),
    )  # fmt: skip
    return test.run(lambda b: {"mean": np.asarray(b.column("inputs.image")).reshape(b.rows, -1).mean(1)})


def test_what_a_model_says_stays_text() -> None:
    html = html_report([hostile()], title=HOSTILE)
    page = Page(html)
    assert len(page.of("script")) == 1
    assert page.of("img") == []
    assert {tag for tag, _ in page.elements if tag not in ("svg",)} >= {"details", "table"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert html.count("alert(1)") == html.count("&lt;script&gt;alert(1)")
    assert "49" not in " ".join(page.text)
    assert HOSTILE in page.text


def test_the_page_makes_no_request_and_allows_itself_its_own_script_only() -> None:
    html = html_report([hostile(), darker(images((1, 28, 28)))])
    page = Page(html)
    (policy,) = [meta["content"] for meta in page.of("meta") if "http-equiv" in meta]
    assert policy is not None
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    addresses = [a[name] or "" for _, a in page.elements for name in ("src", "href", "action") if name in a]
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert not [attributes for _, attributes in page.elements if "style" in attributes]
    assert "@import" not in html
    assert "url(" not in html


def test_every_test_has_a_link_of_its_own() -> None:
    page = Page(html_report([outcome("a b"), outcome("a-b"), outcome("ünï"), outcome("!!")]))
    anchors = [details["id"] for details in page.of("details")]
    assert anchors == ["a-b", "a-b-2", "ünï", "test"]
    assert [link["href"] for link in page.of("a")] == [f"#{anchor}" for anchor in anchors]


def test_no_test_takes_the_name_of_a_part_of_the_page() -> None:
    names = ["none", "tests", "search", "test_x"]
    page = Page(html_report([outcome(name) for name in names]))
    assert [details["id"] for details in page.of("details")] == ["none-2", "tests-2", "search-2", "test_x"]


def test_changes_of_a_text_and_of_a_table_are_marked() -> None:
    example = Example(
        "1", 1.0, {"age": 41, "sex": "Female", "text": "a lovley film"}, {"label": "no", "p": 0.25},
        {"age": 40, "sex": "Female", "text": "a lovely film"}, {"label": "yes", "p": 0.25},
    )  # fmt: skip
    html = html_report([outcome(examples=(example,))])
    assert "a lov<ins>l</ins>e<del>l</del>y film" in html
    assert "<del>40</del>" in html
    assert "<ins>41</ins>" in html
    assert "<del>yes</del>" in html
    assert "<del>Female" not in html
    assert "<del>0.25" not in html


@pytest.mark.parametrize("shape", [(28, 28), (1, 28, 28), (28, 28, 3), (3, 224, 224)])
def test_images_are_shown_before_and_after_and_as_difference(shape: tuple[int, ...]) -> None:
    found = darker(images(shape))
    page = Page(html_report([Outcome.from_dict(json.loads(json.dumps(found.to_dict())))]))
    assert [image["alt"] for image in page.of("img")] == ["before", "after", "difference"] * 2
    contents = [base64.b64decode(str(image["src"]).partition(",")[2]) for image in page.of("img")]
    assert all(content.startswith(b"\x89PNG") for content in contents)
    assert len(set(contents)) > 3


@pytest.mark.parametrize("shape", [(28, 28), (3, 224, 224), (4, 64, 64), (512,), (40, 40, 40)])
def test_an_example_stays_below_20_kb(shape: tuple[int, ...]) -> None:
    for example in darker(images(shape)).to_dict()["examples"]:
        assert len(json.dumps(example)) < 20_000
        assert is_tensor(example["inputs"]["image"])


def test_a_darker_image_is_drawn_darker() -> None:
    from PIL import Image

    (example, _) = darker(images((28, 28))).examples
    assert example.original_inputs is not None
    bright, dark = (
        np.asarray(Image.open(_file(values["image"]["png"]))).mean()
        for values in (example.original_inputs, example.inputs)
    )
    assert dark == pytest.approx(bright / 2, rel=0.02)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_images_with_holes_are_drawn_too(value: float) -> None:
    image = np.full((1, 28, 28), value)
    image[0, :20] = np.random.default_rng(0).random((20, 28))
    batch = Batch.from_columns({"inputs.image": image}, model="m", rows=1)
    test = INV(
        name="t", cases=batch, perturb=perturb.column("image", lambda x, rng: np.flip(x, axis=-1)),
        expect=expect.same("n"),
    )  # fmt: skip
    outcome = test.run(lambda b: {"n": np.arange(b.rows)})
    assert json.loads(json.dumps(outcome.to_dict(), allow_nan=False))
    assert [image["alt"] for image in Page(html_report([outcome])).of("img")] == [
        "before",
        "after",
        "difference",
    ]


def test_a_broken_png_has_no_difference() -> None:
    broken = base64.b64encode(b"\x89PNG\r\n\x1a\n broken").decode()
    before = {"tensor": "t", "shape": [9], "png": broken}
    example = Example("1", 1.0, {"image": before | {"tensor": "u"}}, {}, {"image": before}, {})
    images = Page(html_report([outcome(examples=(example,))])).of("img")
    assert [image["alt"] for image in images] == ["before", "after"]


def test_only_pngs_are_embedded() -> None:
    value = {"tensor": "t", "shape": [9], "png": "javascript:alert(1)"}
    example = Example("1", 1.0, {"image": value}, {}, {"image": value | {"png": "QUJD"}}, {})
    assert Page(html_report([outcome(examples=(example,))])).of("img") == []


@pytest.mark.parametrize(
    ("shape", "found"), [((8, 8), True), ((3, 8, 8), True), ((8,), False), ((2, 8, 8), False)]
)
def test_what_looks_like_an_image(shape: tuple[int, ...], found: bool) -> None:
    assert (image_of(np.zeros(shape).tolist()) is not None) == found


def test_long_texts_keep_their_change() -> None:
    text = "word " * 50_000
    test = INV(
        name="t",
        cases=[text],
        perturb=perturb.each("text", lambda t, rng: f"{t[:100_000]}CHANGE{t[100_000:]}"),
        expect=expect.same("n"),
    )  # fmt: skip
    (example,) = test.run(lambda b: {"n": np.array([len(each) for each in b.column("inputs.text")])}).examples
    assert len(json.dumps([example.inputs, example.original_inputs])) < 10_000
    assert "CHANGE" in example.inputs["text"]
    assert "<ins>CHANGE</ins>" in html_report([outcome(examples=(example,))])


def test_two_models_are_compared_above_the_tests() -> None:
    texts = [f"case {number}" for number in range(20)]
    tests = [
        MFT(name=HOSTILE, suite="s", cases=texts, labels=0),
        MFT(name="test_same", suite="s", cases=texts, labels=0, expect=expect.in_set([0, 1], field="label")),
    ]
    good, bad = (lambda b, v=v: {"label": np.full(b.rows, v)} for v in (0, 1))
    comparison = compare_models(tests, good, bad, names=(HOSTILE, "<b>"))
    outcomes = [row.challenger for row in comparison.rows if row.challenger is not None]
    page = Page(html_report(outcomes, comparison=comparison))
    assert len(page.of("script")) == 1
    verdicts = [
        str(span["class"]) for span in page.of("span") if str(span.get("class")).startswith("verdict")
    ]
    assert verdicts == ["verdict regression", "verdict same"] + 10 * ["verdict regression"]
    assert page.text.count("newly failing") == 1 + 10
    anchors = [f"#{details['id']}" for details in page.of("details")]
    assert {str(link["href"]) for link in page.of("a")} == set(anchors)


def test_a_run_without_tests_is_a_page() -> None:
    assert Page(html_report([])).of("details") == []


def test_the_script_opens_the_test_of_the_link_and_filters(tmp_path: Path) -> None:
    chromium = require_program("chromium", "apt-get install chromium")
    path = tmp_path / "report.html"
    suite = Suite("s", (MFT(name="test_a", cases=["x"], labels=1), MFT(name="test_b", cases=["x"], labels=0)))
    path.write_text(
        html_report(suite.run(lambda b: {"label": np.zeros(b.rows, dtype=int)})), encoding="utf-8"
    )
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--dump-dom", f"{path.as_uri()}#test_b"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    opened = {details["id"]: "open" in details for details in Page(done.stdout).of("details")}
    assert opened == {"test_a": False, "test_b": True}
    assert [cell["aria-pressed"] for cell in Page(done.stdout).of("button") if "aria-pressed" in cell] == [
        "false"
    ]


def _file(png: str) -> io.BytesIO:
    return io.BytesIO(base64.b64decode(png))
