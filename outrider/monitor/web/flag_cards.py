"""Cards of records: pictures, and fields as the flags saw them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from outrider.monitor.queries import queries
from outrider.monitor.queries.blocks import BlockCache

from .highlights import Shown, fields_of
from .pictures import FlagCard, Picture, record_link, record_pictures

MOST_PICTURES = 2


@dataclass(frozen=True, slots=True)
class RecordCard:
    record: queries.RecordView
    link: str
    pictures: tuple[Picture, ...]
    fields: tuple[Shown, ...]
    named: set[str]


@dataclass(frozen=True, slots=True)
class CardMaker:
    engine: Engine
    blocks: BlockCache

    def shown(self, card: FlagCard, about: Mapping[str, str]) -> tuple[FlagCard, tuple[Shown, ...], set[str]]:
        flag = card.flag
        record = self.blocks.record(flag.seq, flag.row)
        if record is not None and (flag.slot != "champion" or not record.get("outputs")):
            record = record | {"outputs": self.answer(flag, flag.record_id)}
        fields, named = fields_of(record, card.flags, about)
        return card, fields, {column.removeprefix("inputs.") for column in named}

    def answer(self, judged: queries.FlagView | queries.RecordView, record_id: str) -> dict[str, Any]:
        version = judged.version if isinstance(judged, queries.FlagView) else None
        return queries.read_answer(self.engine, judged.model, version, seq=judged.seq, record_id=record_id)

    def record(self, view: queries.RecordView, about: Mapping[str, str]) -> RecordCard:
        batch = self.blocks.batch(view.seq)
        payload = self.blocks.record(view.seq, view.row)
        if payload is not None and not payload.get("outputs"):
            payload = payload | {"outputs": self.answer(view, view.id)}
        fields, named = fields_of(payload, view.flags, about)
        return RecordCard(
            view,
            record_link(view.model, view.id),
            record_pictures(batch, view.model, view.id, view.row)[:MOST_PICTURES],
            fields,
            {column.removeprefix("inputs.") for column in named},
        )
