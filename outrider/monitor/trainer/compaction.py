"""Packing of datasets with many small files, while no job waits."""

import logging

from sqlalchemy import Engine

from outrider.dataops.payloads.objects import LocalObjects, ObjectStore
from outrider.dataops.upkeep.compaction import FEW, compact, crowded
from outrider.errors import OutriderError

log = logging.getLogger(__name__)


class Compactor:
    def __init__(self, engine: Engine, objects: ObjectStore) -> None:
        self._engine, self._objects = engine, objects
        self._left: dict[str, int] = {}

    def look(self) -> None:
        if not isinstance(self._objects, LocalObjects):
            return
        with self._engine.connect() as connection:
            found = crowded(connection)
        for dataset, count in found.items():
            if count <= self._left.get(dataset, 0) + FEW:
                continue
            self._left[dataset] = count
            try:
                done = compact(self._engine, self._objects, dataset, few=FEW)
            except (OutriderError, OSError) as error:  # a damaged file, a full disk: jobs go on
                log.warning("%s is not packed: %s", dataset, error)
                return
            log.info("%s: %d objects packed into %d", dataset, done.before, done.after)
            with self._engine.connect() as connection:
                self._left[dataset] = crowded(connection).get(dataset, 0)
            return
