import numpy as np
import pytest

from outrider.assertions import Batch
from outrider.behavioral_tests import expect


def answers(**outputs: object) -> Batch:
    rows = len(next(iter(outputs.values())))  # type: ignore[arg-type]  # test data are lists
    records = [{"outputs": {name: values[row] for name, values in outputs.items()}} for row in range(rows)]  # type: ignore[index]  # see above
    return Batch.from_records(records, model="m")


@pytest.mark.parametrize(
    ("expectation", "before", "after", "severities"),
    [
        (expect.same(), {"label": [1, 2]}, {"label": [1, 3]}, [0, 1]),
        (expect.same(), {"label": ["a", "b", None]}, {"label": ["a", "c", "b"]}, [0, 1, np.nan]),
        (expect.same("score"), {"score": [0.5]}, {"score": [0.75]}, [0.25]),
        (expect.same("score", tolerance=0.3), {"score": [0.5, 0.5]}, {"score": [0.75, 1.0]}, [0, 0.2]),
        (expect.same("score"), {"score": [0.5]}, {"score": [np.nan]}, [np.nan]),
        (expect.same("probs"), {"probs": [[0.5, 0.5]]}, {"probs": [[0.25, 0.75]]}, [0.25]),
        (
            expect.same("label", "score"),
            {"label": [1], "score": [0.5]},
            {"label": [1], "score": [0.0]},
            [0.5],
        ),
        (expect.equal(to=3), {"label": [0, 0]}, {"label": [3, 2]}, [0, 1]),
        (expect.not_equal(to="b"), {"label": ["", ""]}, {"label": ["a", "b"]}, [0, 1]),
        (expect.changed(), {"label": [1, 2]}, {"label": [1, 3]}, [1, 0]),
        (expect.in_set({"a", "b"}), {"label": ["a", "a"]}, {"label": ["b", "c"]}, [0, 1]),
        (expect.within("score", low=0, high=1), {"score": [0, 0, 0]}, {"score": [0.5, 1.5, -2]}, [0, 0.5, 2]),
        (expect.monotone("p", direction="increasing"), {"p": [1.0, 1.0]}, {"p": [2.0, 0.5]}, [0, 0.5]),
        (expect.monotone("p", direction="decreasing"), {"p": [1.0, 1.0]}, {"p": [2.0, 0.5]}, [1, 0]),
        (
            expect.monotone("probs[1]", direction="increasing", tolerance=0.25),
            {"probs": [[0.5, 0.5]]},
            {"probs": [[1.0, 0.0]]},
            [0.25],
        ),
    ],
)
def test_severities(
    expectation: expect.Expectation,
    before: dict[str, object],
    after: dict[str, object],
    severities: list[float],
) -> None:
    was, now = answers(**before), answers(**after)
    found = expect.severities(expectation(was, now), was.rows)
    np.testing.assert_allclose(found, severities, atol=1e-7)


def test_the_right_answer_is_the_label_of_the_case() -> None:
    cases = Batch.from_records([{"label": {"label": 1}}, {"label": {"label": 2}}, {"label": {}}], model="m")
    answered = cases.with_outputs({"label": np.array([1, 1, 1])})
    np.testing.assert_array_equal(expect.equal()(cases, answered), [0, 1, np.nan])
    np.testing.assert_array_equal(expect.not_equal()(cases, answered), [1, 0, np.nan])


def test_texts_and_numbers_are_never_silently_unequal() -> None:
    with pytest.raises(TypeError, match="they could never be equal"):
        expect.same()(answers(label=["1"]), answers(label=[1]))


def test_a_missing_output_names_what_there_is() -> None:
    with pytest.raises(KeyError, match=r"outputs\.score"):
        expect.same("label")(answers(score=[1.0]), answers(score=[1.0]))


@pytest.mark.parametrize("verdict", [np.array([1.0]), np.array([-1.0, 0.0]), True])
def test_a_verdict_of_another_shape_or_sign_is_refused(verdict: object) -> None:
    with pytest.raises(ValueError, match=r"one value per record|must be finite and >= 0"):
        expect.severities(np.asarray(verdict), 2)
