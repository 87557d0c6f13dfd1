import numpy as np

from outrider.assertions import Findings, WeakLabels
from outrider.monitor.host.findings_frame import pack, unpack


def test_plain_findings_are_one_buffer() -> None:
    found = Findings.of(np.array([0.0, 0.5, 0.0, 2.0]))
    parts = pack(found)
    assert len(parts) == 1
    back, _ = unpack(parts)
    assert back.row.tolist() == [1, 3]
    assert back.severity.tolist() == [0.5, 2.0]


def test_everything_a_finding_says_comes_back() -> None:
    weak = WeakLabels(
        np.array([0, 1]),
        np.array([0, 0]),
        ("add", "replace"),
        ("outputs.boxes", "outputs.label"),
        np.array([-1, -1]),
        ({"x": np.float64(1.5), "y": np.array([1, 2])}, np.int64(3)),
        np.array([1.0, 0.75]),
    )
    found = Findings(
        np.array([2]), np.array([1.0]), ("cam/7/flicker/f1",), (np.array([0, 1]),), ({"gap": 2},), weak
    )
    back, _ = unpack(pack(found))
    assert back.subject == ["cam/7/flicker/f1"]
    assert [rows.tolist() for rows in back.members] == [[0, 1]]
    assert back.evidence == [{"gap": 2}]
    assert back.weak_labels.value == [{"x": 1.5, "y": [1, 2]}, 3]
    assert back.weak_labels.kind == ["add", "replace"]
    assert back.weak_labels.confidence.tolist() == [1.0, 0.75]
