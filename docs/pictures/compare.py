"""Picture of the README: the live page of a run on ``examples/compare_prompts``.

``python docs/pictures/compare.py`` writes ``compare.png`` beside itself and prints what the run said.
It needs Chromium, and Pillow for fewer colours.
"""

import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "compare_prompts"
WIDTH, HEIGHT = 1000, 755


def compared(folder: Path, picture: Path) -> str:
    """Text that a run printed; its page is drawn once every candidate has its verdict."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    subprocess.run([sys.executable, "record.py"], cwd=folder, check=True)
    server = subprocess.Popen([sys.executable, "server.py", port], cwd=folder)
    time.sleep(2.0)
    asked = ["--production", f"http://127.0.0.1:{port}/v1", "--candidate", "shorter.md"]
    asked += ["--candidate", "careless.md", "--from", "traffic.jsonl", "--agree", "words", "--page"]
    run = subprocess.Popen(
        [sys.executable, "-m", "outrider", "compare", *asked],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stderr is not None
    told = ""
    while "until Ctrl-C" not in told:
        line = run.stderr.readline()
        if not line:
            raise SystemExit(f"the run ended: {told}")
        told += line
    _draw(re.findall(r"page: (\S+)", told)[0], picture)
    run.send_signal(signal.SIGINT)
    said = run.communicate()[0]
    server.kill()
    server.wait()
    return said


def _draw(url: str, picture: Path) -> None:
    with tempfile.TemporaryDirectory() as profile:
        options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --window-size={WIDTH},{HEIGHT}"
        chromium = [
            "chromium",
            *options.split(),
            f"--user-data-dir={profile}",
            f"--screenshot={picture}",
            url,
        ]
        subprocess.run(chromium, check=True, capture_output=True)
    Image.open(picture).convert("RGB").quantize(128).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        print(compared(Path(shutil.copytree(EXAMPLE, Path(work, "example"))), HERE / "compare.png"))  # noqa: T201
