"""The API of everything that ``dataops`` remembers, as one router.

Plain ``def`` endpoints: FastAPI runs them in threads.
"""

from fastapi import APIRouter
from sqlalchemy import Engine

from outrider.dataops.journal.blocks import BlockSource
from outrider.dataops.payloads.objects import ObjectStore
from outrider.monitor.settings.config import Settings

from .champions import add_champions
from .dataset_tags import add_dataset_tags
from .datasets import add_commit, add_datasets
from .labels import add_labels
from .models import add_models
from .outcomes import add_outcomes
from .quality import add_incidents, add_quality, add_reviews
from .quarantine import add_quarantine
from .retrains import add_retrains


def data_routes(
    engine: Engine, settings: Settings, objects: ObjectStore, blocks: BlockSource | None = None
) -> APIRouter:
    """Router of models, datasets, jobs, labels, assertion quality, verdicts, lineage."""
    router = APIRouter(prefix="/v1")
    add_champions(router, engine, settings)
    add_models(router, engine, objects)
    add_datasets(router, engine, objects)
    add_commit(router, engine, settings, objects)
    add_dataset_tags(router, engine)
    add_quarantine(router, engine)
    add_retrains(router, engine, settings)
    add_outcomes(router, engine, settings)
    add_labels(router, engine, settings, blocks)
    add_quality(router, engine, settings)
    add_reviews(router, engine)
    add_incidents(router, engine, settings)
    return router
