"""A damaged block becomes a dead letter, is counted and told by doctor; what comes behind it is judged."""

from pathlib import Path

from outrider.commands import doctor
from tests.end_to_end.service import write_project
from tests.monitor.workbench import workbench


def records(name: str) -> list[dict[str, object]]:
    return [{"id": f"{name}{row}", "entity": "e", "inputs": {"x": row / 10}} for row in range(10)]


def test_a_damaged_block_is_quarantined_and_the_rest_is_judged(tmp_path: Path) -> None:
    config = write_project(tmp_path)
    with workbench(config) as bench:
        seqs = [bench.feed(records(name), after_s=2.0) for name in "abc"]
        # One bit of the payload of the second block, as a disk would flip it.
        journal = bench.journal._db
        payload = bytearray(
            journal.execute("SELECT payload FROM block WHERE seq = ?", (seqs[1],)).fetchone()[0]
        )
        payload[len(payload) // 2] ^= 4
        journal.execute("UPDATE block SET payload = ? WHERE seq = ?", (bytes(payload), seqs[1]))
        bench.work()
        assert bench.count("records") == 20
        assert {row[0][0] for row in bench.rows("SELECT id FROM record")} == {"a", "c"}
        [(seq, reason, detail)] = bench.rows("SELECT seq, reason, detail FROM dead_letter")
        assert (seq, reason) == (seqs[1], "unreadable")
        assert "checksum" in detail
        assert "10 records" in detail
        counted = bench.registry.get_sample_value(
            "outrider_dead_letters_total", {"model": "toy", "reason": "unreadable"}
        )
        assert counted == 1
        bench.feed(records("d"), after_s=2.0)
        bench.work()
        assert bench.count("records") == 30
        told = doctor._data(config)
        assert list(told["damaged_blocks"]) == [seqs[1]]
        assert "checksum" in told["damaged_blocks"][seqs[1]]
