"""docs/judges.md: its configuration and its files run as they stand there."""

import re
from pathlib import Path

from tests.chat_server import chat_server

from .test_judges import finish
from .workbench import workbench

GUIDE = Path(__file__).parents[2] / "docs" / "judges.md"


def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None
        (tmp_path / name[1]).write_text(block, encoding="utf-8")
    config = "\n".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)).replace(
        "models.support", "models.toy"
    )

    def say(prompt: str) -> str:
        verdict = "grounded" if '"outputs.text": "two years"' in prompt else "not_grounded"
        return f'{{"verdict": "{verdict}", "score": 0.9}}'

    with chat_server(say) as server:
        config = config.replace("http://127.0.0.1:8000/v1/chat/completions", server.url)
        config = config.replace("rate = 0.2 ", "rate = 1.0 ")
        (tmp_path / "outrider.toml").write_text(config, encoding="utf-8")
        with workbench(tmp_path / "outrider.toml") as bench:
            passages = {"passages": ["The warranty lasts two years.", "Returns are free."]}
            bench.feed(
                [
                    {
                        "id": answer,
                        "inputs": {"question": "How long is the warranty?"},
                        "outputs": {"text": answer},
                        "attrs": passages,
                    }
                    for answer in ("two years", "for life, you fault")
                ]
            )
            finish(bench, "judge.grounded", "judge.tone")
            assert bench.flags("ungrounded") == {"for life, you fault"}
            assert bench.count("answered", "judge.tone") == 2
            assert "Returns are free." in server.prompts[0]
