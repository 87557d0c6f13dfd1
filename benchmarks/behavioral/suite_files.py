"""CheckList's sentiment suite as a suite file, 178,578 examples: read into columns, and written.

Reading is held against ``json.loads`` of the same bytes, which checks and builds nothing. CheckList's own
file is a pickle that no current Python loads.
"""

import json
import tempfile
from pathlib import Path

from benchmarks.behavioral._medians import medians
from benchmarks.data import data_folder
from benchmarks.figure import Figure
from outrider.behavioral_tests import load_suite
from outrider.behavioral_tests.suite_file import read_checklist, write

RUNS = 7


def main() -> None:
    """Two figures: seconds to read and to write."""
    written, _ = read_checklist(data_folder("checklist") / "sentiment_suite.jsonl.gz")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sentiment.suite.json"
        write(written, path)
        content = path.read_bytes()
        floor_s, read_s, write_s = medians(
            [lambda: json.loads(content), lambda: load_suite(path), lambda: write(written, path)], RUNS
        )
        examples = sum(len(test.examples().case) for test in load_suite(path).tests)
    print(f"# {examples} examples, {len(content) / 1e6:.3g} MB")
    against = f"json.loads, {floor_s:.3g} s"
    Figure("behavioral.suite_files.read", read_s, "s", against, read_s / floor_s).show()
    Figure("behavioral.suite_files.write", write_s, "s", against, write_s / floor_s).show()


if __name__ == "__main__":
    main()
