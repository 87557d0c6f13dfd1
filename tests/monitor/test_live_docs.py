"""docs/live-tests.md: its configuration and its files run as they stand there."""

import re
import tomllib
from pathlib import Path

from outrider.monitor.settings.model_sections import LiveSettings

from .workbench import workbench

GUIDE = Path(__file__).parents[2] / "docs" / "live-tests.md"
BLOCKS = re.findall(r"```(toml|python)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    for _, block in BLOCKS:
        if name := re.match(r"# (\S+\.(?:py|toml))\n", block):
            (tmp_path / name[1]).write_text(block.replace("models.mood", "models.toy"), encoding="utf-8")
    with workbench(tmp_path / "outrider.toml") as bench:
        assert bench.host is not None
        assert bench.host.errors == {"toy": []}
        for number in range(30):
            texts = [f"a {'good' if n % 2 else 'poor'} film, number {n}" for n in range(40)]
            bench.feed(
                [
                    {"id": f"r{number}-{n}", "inputs": {"text": text}, "outputs": {"label": "good"}}
                    for n, text in enumerate(texts)
                ],
                after_s=1.0,
            )
        bench.work()
        asked = dict(bench.rows("SELECT test, asked FROM live_rate"))
        assert asked.keys() == {"test_typos", "test_spaces", "test_case"}
        assert sum(asked.values()) <= 50 * 40
        failing = dict(bench.rows("SELECT test, failed FROM live_rate"))
        assert failing["test_case"] > failing["test_spaces"] == 0


def test_the_other_examples_hold() -> None:
    sequence = next(block for kind, block in BLOCKS if kind == "python" and "RateSequence" in block)
    exec(compile(sequence, str(GUIDE), "exec"), {})
    (endpoint,) = (block for kind, block in BLOCKS if kind == "toml" and "endpoint" in block)
    assert LiveSettings(**tomllib.loads(endpoint)["models"]["prices"]["live"]).rows_per_s == 5
