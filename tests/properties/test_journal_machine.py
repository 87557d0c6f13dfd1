"""Whatever is appended, expired and reopened, reading gives back exactly what stands."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from outrider.dataops.journal.journal import Block, Entry, SqliteJournal
from tests.soak import examples

entries = st.lists(
    st.builds(
        Entry,
        kind=st.sampled_from(["records", "labels"]),
        model=st.sampled_from(["a", "b"]),
        rows=st.integers(0, 10),
        payload=st.binary(max_size=20_000),
        digest=st.sampled_from(["", "d1", "d2"]),
        schema=st.just(b"s"),
    ),
    max_size=4,
)


class JournalMachine(RuleBasedStateMachine):
    """A dict of blocks is the model of the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.journal = SqliteJournal(self.folder / "journal.db")
        self.expected: dict[int, Block] = {}
        self.highest = 0

    @rule(new=entries, received_us=st.integers(0, 2**62))
    def append(self, new: list[Entry], received_us: int) -> None:
        seqs = self.journal.append(new, received_us)
        assert all(seq > self.highest for seq in seqs)
        assert seqs == sorted(set(seqs))
        for seq, e in zip(seqs, new, strict=True):
            self.expected[seq] = Block(seq, e.kind, e.model, received_us, e.rows, e.payload)
            self.highest = seq

    @rule()
    def reopen(self) -> None:
        uuid = self.journal.uuid
        self.journal.close()
        self.journal = SqliteJournal(self.folder / "journal.db")
        assert self.journal.uuid == uuid

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        if self.expected:
            gone = data.draw(st.sets(st.sampled_from(sorted(self.expected))))
            assert self.journal.expire(gone) == len(gone)
            for seq in gone:
                del self.expected[seq]

    @invariant()
    def reading_is_the_identity(self) -> None:
        assert self.journal.read(0, limit=10_000) == list(self.expected.values())
        assert self.journal.last_seq() == self.highest

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.folder)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=examples(25), stateful_step_count=15)
