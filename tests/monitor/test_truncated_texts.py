"""Texts that the tokenizer of a model cut are told in its profile."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from outrider.assertions.profiling import summaries
from outrider.dataops.ledger.stored_profiles import ProfileRange, read_profile
from outrider.monitor.engine.asks import AskAnswer
from outrider.monitor.engine.frames import AnswerReader, AnswerWriter
from tests.dataops.model_kinds.folders import bert_config, save, write_tokenizer
from tests.end_to_end.service import write_project
from tests.monitor.workbench import Workbench, workbench

CONFIG = """
[models.toy]
folder = "net"
task = "classification"
inputs = ["text"]
classes = ["bad", "good"]
assertions = ["checks.py"]
"""
LENGTHS = [3, 30, 31, 90]


def test_a_frame_carries_which_rows_were_cut() -> None:
    outputs = {"label": np.arange(5)}
    cut = {"text": np.array([False, True, False, False, True])}
    header, buffers = AnswerWriter().answer(AskAnswer(1, "1", outputs, cut=cut))
    found = AnswerReader().answer(header, [memoryview(one) for one in buffers])
    assert found.cut["text"].tolist() == cut["text"].tolist()
    header, buffers = AnswerWriter().answer(AskAnswer(1, "1", outputs))
    assert AnswerReader().answer(header, [memoryview(one) for one in buffers]).cut == {}


def _shares(made: Workbench) -> Counter[str]:
    with made.engine.connect() as connection:
        found = read_profile(connection, "toy", ProfileRange())
    assert found is not None
    columns = {one.name: one for one in summaries(found.profile)}
    (column,) = [columns[name] for name in columns if name.endswith("#truncated")]
    assert column.name == "inputs.text#truncated"
    return Counter({one.name: int(one.weight) for one in column.categories})


def test_the_share_of_cut_texts_stands_in_the_profile(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "net")
    save(tmp_path / "net", "BertForSequenceClassification", bert_config(len(tokenizer)))
    with workbench(write_project(tmp_path, config=CONFIG)) as made:
        expected = 0
        for block in range(8):
            records: list[dict[str, Any]] = []
            for at in range(40):
                words = LENGTHS[(7 * block + at) % 4]
                expected += words > 30
                records.append({"id": f"r{block}-{at}", "inputs": {"text": " ".join(["good"] * words)}})
            made.feed(records)
        made.work()
        made.feed([{"id": "later", "inputs": {"text": "good film"}}], after_s=3700)
        made.work()
        made.feed([{"id": "last", "inputs": {"text": "good film"}}], after_s=120)
        made.work()
        assert _shares(made)["true"] == expected
