"""The retraining job: dataset, training, registration, shadow time, gate, verdict.

Each stage commits its result with the job's progress in one transaction, so that a job that is run again
after a crash goes on behind the last stage that was finished.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from outrider.assertions import Batch, Predictor
from outrider.assertions.comparison.typed_text import text_of
from outrider.assertions.flags.quality import Asked
from outrider.behavioral_tests import Outcome
from outrider.dataops.datasets import collect as flagged
from outrider.dataops.datasets import versions as datasets
from outrider.dataops.datasets.label_account import LabelAccount, refused_sentence
from outrider.dataops.datasets.references import name_of, open_if_any
from outrider.dataops.datasets.slices import rows_where
from outrider.dataops.datasets.versions import Version
from outrider.dataops.improvement import gate, jobs
from outrider.dataops.improvement.jobs import JobRow
from outrider.dataops.improvement.rolling import RollingEvidence
from outrider.dataops.improvement.row_tries import row_keys, rows_to_judge_by, tries_of
from outrider.dataops.labels.estimates import request_weights
from outrider.dataops.labels.queue import Choice, choose_labels, list_requests, queue_labels
from outrider.dataops.model_kinds.source import Source
from outrider.dataops.models import registry as models
from outrider.dataops.state.database import now_us, write
from outrider.dataops.training.trainer import Progress
from outrider.dataops.uploads.asking import ask_for_version
from outrider.errors import ConfigError, Erased, NotFound, ValidationRefused, nearest
from outrider.monitor.registry.predictors import version_predictors
from outrider.monitor.settings.gate_policy import frozen
from outrider.monitor.settings.gate_sections import FrozenPolicy
from outrider.monitor.settings.model_sections import ModelSettings, RetrainSettings
from outrider.monitor.settings.sources import source_of, why_trained_elsewhere

from .context import JobContext
from .dataset_jobs import commit_flagged
from .evidence import paired_evidence, shadow_evidence, suite_evidence
from .judgements import VersionJudgement, keep, told
from .limit_evidence import asked_policy, limit_evidence, unknown_assertions
from .rolling_evidence import rolling_evidence
from .scoring import AnswerScoring
from .suites import compare_all, model_suites
from .training.repeating import repeat
from .training.stage import LearnedVersions, forget, keep_trained, options_json, train, training_task
from .waiting_jobs import LIVE_RECORDS, LOOK_SHARE, JobWaits, has_live_records

log = logging.getLogger(__name__)
OVERRIDES = ("epochs", "learning_rate", "replay_ratio", "batch_rows", "seed")
ASKED = 100_000
PATIENCE_S = 10.0
"""Wait for live records before the process ends and the job waits without one."""


class Retraining:
    def __init__(self, context: JobContext, job: JobRow) -> None:
        self.context = context
        self.job = job
        self.settings: ModelSettings = context.model(job.model)
        self.options = options_of(self.settings.retrain, job.params)
        self.judged_by: list[tuple[Version, list[str]]] = []
        self.asked: Batch | None = None
        self.rolling: RollingEvidence | None = None
        self.result: dict[str, Any] = {name: job.result[name] for name in job.result if name != "log"}
        kept = self.result.get("policy")
        self.policy = FrozenPolicy.model_validate(kept) if kept else frozen(self.settings.gate)
        self.result.setdefault("seconds", {})
        if "candidate" in job.params:  # a challenger that is there already: nothing is trained
            self.result |= {"dataset": job.params.get("dataset"), "candidate": str(job.params["candidate"])}
            return
        if self.is_look or self.is_repetition or self.is_external:
            return
        self.source = self._trainable()

    @property
    def is_look(self) -> bool:
        """True where nothing is trained: all versions are compared."""
        return self.job.params.get("trigger") == jobs.ROLLING

    @property
    def is_repetition(self) -> bool:
        """True where an earlier training is repeated and its digest compared."""
        return "repeat" in self.job.params

    @property
    def _first(self) -> str:
        """Job whose checkpoints are continued: the first of a chain of retries."""
        return str(self.job.params.get("retry_of", self.job.id))

    @property
    def is_external(self) -> bool:
        return self.settings.retrain.trainer == "external"

    @property
    def candidate(self) -> str | None:
        return None if self.is_look else str(self.result["candidate"])

    def run(self) -> None:
        """Run all unfinished stages and close the job."""
        if self.is_repetition:
            repeat(self.context, self.job, self._progress)
            return
        if "dataset" not in self.result and not self.is_look:
            with self._stage("dataset"):
                self._make_dataset()
        if "candidate" not in self.result and self.is_external and not self.is_look:
            with self._stage("train"):
                own, told = self.context, self.options.model_dump(mode="json")
                raise JobWaits(
                    ask_for_version(
                        own.engine, self.job, told, self.result, service=own.service, targets=own.targets
                    )
                )
        if "candidate" not in self.result and not self.is_look:
            with self._stage("train"):
                self._train()
        self.result["policy"] = self.policy.model_dump(mode="json")  # whatever becomes of its file
        if self.candidate is not None:
            with self._stage("shadow"):
                self._wait_for_shadow()
        is_judged = self._is_decided()
        while not is_judged:  # again where another version is champion, or rows were erased, meanwhile
            with self._stage("gate"):
                self.rolling = self._compare()
                found = [self._judged(version) for version in self._contenders()]
            is_judged = self._conclude(found)

    # ---- stages ----------------------------------------------------------------------------------------

    def _make_dataset(self) -> None:
        def request(connection: Connection, made: Version | None, account: LabelAccount) -> None:
            self.result["labels"] = account
            version = made or datasets.newest(connection, flagged.dataset_of(self.job.model))
            if version is None and not self.job.params.get("from_scratch"):
                return
            self.result["dataset"] = None if version is None else version.id
            own = self.context
            if self.is_external:  # it asks once the job waits
                jobs.note(connection, self.job.id, stage="dataset", result=self.result)
                return
            jobs.request_training(
                connection, self.job, version, service=own.service, targets=own.targets, now_us=now_us()
            )
            jobs.note(connection, self.job.id, stage="dataset", result=self.result)

        commit_flagged(self.context, self.job, request)
        if "dataset" not in self.result:
            raise ValidationRefused(
                f"no record of {self.job.model} is flagged and labelled: there is nothing to learn from; "
                f"`outrider label request {self.job.model}` puts flagged ones up for labelling"
            )

    def _train(self) -> None:
        context, from_scratch = self.context, bool(self.job.params.get("from_scratch"))
        with context.engine.connect() as connection:
            champion = self._champion(connection)
            learned = LearnedVersions(*self._versions(connection), None if from_scratch else champion)
            if learned.replay is None and self.options.replay:
                self.result["unreplayed"] = (
                    f"dataset {self.options.replay!r} to replay has no version: it learned fresh rows alone"
                )
                log.warning("%s", self.result["unreplayed"])
            task = training_task(
                context,
                connection,
                learned,
                job=self._first,
                source=self.source,
                settings=self.settings,
                model=self.job.model,
                options=options_json(self.options),
            )
        made = train(task, self._progress, is_leak_refused=self.options.move_leaks != "none")
        with context.engine.connect() as connection:
            learned.check_whole(connection)
        kept = keep_trained(context, made.model, task)
        with write(context.engine) as connection:
            learned.check_whole(connection)
            candidate = models.register(
                connection,
                model=self.job.model,
                version=models.next_version(connection, self.job.model),
                status="challenger",
                digest=made.run["digest"],
                weights=kept.weights,
                now_us=now_us(),
                note=made.model.note,
                source=kept.source.to_json(),
                made_from=[("job", self.job.id, "trained by"), *learned.parents],
            )
            self.result |= {"candidate": candidate.version, "champion": champion.version, "run": made.run}
            jobs.note(connection, self.job.id, stage="train", result=self.result)
        forget(context, self._first)

    def _wait_for_shadow(self) -> None:
        """Wait for enough judged live records; raises JobWaits where they take longer than a
        process is kept for."""
        policy, waits = self.policy, self.result.pop("waits", {})
        until_us = int(waits.get("until_us", now_us() + policy.shadow_timeout_s * 1_000_000))
        patience = time.monotonic() + PATIENCE_S
        while policy.shadow_rows and now_us() < until_us:
            began = time.monotonic()
            if has_live_records(self.context, self.job.model, self.result["candidate"], policy):
                return
            self.context.check_stop()
            if time.monotonic() >= patience:
                with write(self.context.engine) as connection:
                    jobs.wait(connection, self.job.id, LIVE_RECORDS, until_us=until_us, result=self.result)
                raise JobWaits(f"{self.job.id} waits for {LIVE_RECORDS}")
            rest = (time.monotonic() - began) / LOOK_SHARE  # all records are read each time
            self.context.stop.wait(max(self.context.poll_s, min(rest, (until_us - now_us()) / 1e6)))

    def _compare(self) -> RollingEvidence | None:
        if self.policy.rolling is None or self.policy.fault:
            return None
        with self.context.engine.connect() as connection:
            return rolling_evidence(
                self.context,
                connection,
                self.job.model,
                self.policy.rolling,
                champion=self._champion(connection).version,
                scoring=self._scoring(),
                load=lambda version: self._predictors(connection, version)[0],
                also=self.candidate,
            )

    def _contenders(self) -> list[str]:
        """Versions to be judged: an earlier one that wins, and the job's candidate."""
        winner = None if self.rolling is None else self.rolling.winner
        return list(dict.fromkeys(one for one in (winner, self.candidate) if one is not None))

    def _judged(self, version: str) -> VersionJudgement:
        evidence, outcomes = self._gather(version)
        verdict = gate.decide(asked_policy(self.policy), evidence)
        with self.context.engine.connect() as connection:
            promotes, reasons = told(connection, self.job, self.policy, version, evidence, verdict)
        if version == self.candidate:
            reasons = [*reasons, *self._unlearned()]
        return VersionJudgement(
            version, evidence, outcomes, tuple(self.judged_by), verdict, promotes, reasons
        )

    def _unlearned(self) -> list[str]:
        """Sentences on labelled rows and replay data that the candidate did not learn from."""
        account = self.result.get("labels")
        found = [refused_sentence(account) if account else "", self.result.get("unreplayed", "")]
        return [sentence for sentence in found if sentence]

    def _gather(self, candidate: str) -> tuple[gate.Evidence, Mapping[str, Sequence[Outcome]]]:
        context, asked = self.context, asked_policy(self.policy)
        missing: list[str] = []
        self.judged_by, self.asked = [], None
        with context.engine.connect() as connection:
            champion = self._champion(connection).version
            if self.policy.fault:
                return gate.Evidence(), {champion: [], candidate: []}
            old, new = self._predictors(connection, champion, candidate)
            both = old, new
            held_out, held_batch = self._held_out(connection, both, missing)
            fresh = self._fresh(connection, both) if self.rolling is None else None
            named = self._named(connection, both, missing)
            shadow = shadow_evidence(connection, self.job.model, champion, candidate)
            missing += unknown_assertions(connection, self.job.model, asked.limits)
            limits = limit_evidence(
                context, connection, self.job.model, asked.limits, (champion, candidate), both, self.asked
            )
        comparison = compare_all(
            model_suites(context.settings, self.job.model),
            *both,
            cases=held_batch,
            seed=self.options.seed,
            pause=context.check_stop,
        )
        suites, unknown = suite_evidence(comparison)
        outcomes = {
            champion: [row.champion for row in comparison.rows if row.champion is not None],
            candidate: [row.challenger for row in comparison.rows if row.challenger is not None],
        }
        live = shadow if self.policy.shadow_rows else None
        rolling = self.rolling and dataclasses.replace(self.rolling, judged=candidate)
        missing += unknown
        return gate.Evidence(suites, held_out, fresh, live, missing, named, limits, rolling), outcomes

    def _held_out(
        self, connection: Connection, both: tuple[Predictor, Predictor], missing: list[str]
    ) -> tuple[gate.PairedEvidence | None, Batch | None]:
        version = self._judging(connection, "held_out", self.policy.held_out, missing)
        if version is None:
            return None, None
        batch = datasets.read(connection, self.context.objects, version)
        return self._paired(
            connection, version, version.id, batch, both, slice_by=self.settings.slice_by
        ), batch

    def _judging(
        self, connection: Connection, key: str, reference: str | None, missing: list[str]
    ) -> Version | None:
        """Version that the policy names, or a sentence on its absence."""
        try:
            version = open_if_any(connection, reference)
        except (Erased, NotFound) as error:
            missing.append(f"gate.{key} names {reference!r}: {error}")
            return None
        if version is None and reference:
            near = nearest(name_of(reference), {one.dataset for one in datasets.all_versions(connection)})
            missing.append(f"gate.{key} names dataset {reference!r}, which has no version; import it{near}")
        return version

    def _named(
        self, connection: Connection, both: tuple[Predictor, Predictor], missing: list[str]
    ) -> list[gate.NamedSlice]:
        found = []
        for part in self.policy.slices:
            key = f"slices.{part.name}"
            own = part.held_out or self.policy.held_out
            version = self._judging(connection, key, own, missing)
            if version is None:
                continue
            batch = datasets.read(connection, self.context.objects, version)
            rows, why = rows_where(batch, part.where)
            if why:
                missing.append(f"gate.{key}: no row of {version.id} {why}")
                continue
            name = f"{version.id}, {part.name}"
            parts = len(self.policy.slices)
            pair = self._paired(connection, version, name, batch.take(rows), both, slice_by=None, parts=parts)
            margin = self.policy.max_drop if part.max_drop is None else part.max_drop
            found.append(gate.NamedSlice(part.name, margin, pair))
        return found

    def _fresh(self, connection: Connection, both: tuple[Predictor, Predictor]) -> gate.PairedEvidence | None:
        version, _ = self._versions(connection)
        if version is None:
            return None
        rows = datasets.read(connection, self.context.objects, version, part="held_out")
        if not rows.rows:
            return None
        weights = request_weights(connection, self.job.model)
        name, slice_by = f"{version.id} held out", self.settings.slice_by
        return self._paired(connection, version, name, rows, both, weights, slice_by=slice_by)

    def _paired(
        self,
        connection: Connection,
        version: Version,
        name: str,
        batch: Batch,
        both: tuple[Predictor, Predictor],
        weights: Mapping[str, Asked] | None = None,
        *,
        slice_by: str | None,
        parts: int = 1,
    ) -> gate.PairedEvidence:
        settings = self.settings
        table = pa.Table.from_batches([batch.to_arrow()])
        keys = row_keys(connection, table, settings.declared_inputs)
        tries = tries_of(connection, self.job.model, keys)
        chosen = np.flatnonzero(rows_to_judge_by(tries))
        judged = batch.take(chosen)
        self.asked = judged if self.asked is None else self.asked
        self.judged_by.append((version, [keys[row] for row in chosen]))
        found = paired_evidence(
            name,
            judged,
            *both,
            scoring=self._scoring(),
            weights=weights,
            tries=1 + int(tries[chosen].max(initial=0)),
            slices=text_of(judged, f"attrs.{slice_by}") if slice_by else (),
            parts=parts,
            rare=self.policy.max_drop,
            pause=self.context.check_stop,
        )
        return dataclasses.replace(found, worn=batch.rows - len(chosen))

    def _scoring(self) -> AnswerScoring:
        policy, settings, base = self.policy, self.settings, self.context.settings.base
        return AnswerScoring(
            policy.loss, settings.target, settings.classes, policy.scores, base, policy.scorer_deadline_s,
            settings.is_number,
        )  # fmt: skip

    def _conclude(self, found: Sequence[VersionJudgement]) -> bool:
        """Write the verdicts; False where champion or judging rows have changed.

        The first passed version without a person to ask is promoted.
        """
        now = now_us()
        with self.context.engine.connect() as connection:
            requests = {
                one.version: self._request(connection, one.verdict)
                for one in found
                if one.version == self.candidate
            }
        winner = next((one.version for one in found if one.promotes), None)
        judged_by = [pair for one in found for pair in one.judged_by]
        with write(self.context.engine) as connection:
            champion = self._champion(connection).version
            is_other = self.rolling is not None and self.rolling.champion != champion
            if any(champion not in one.outcomes for one in found) or (
                is_other and champion != self.candidate
            ):
                log.info("%s: %s is champion now: the gate asks it, too", self.job.id, champion)
                return False
            if any(datasets.is_erased_from(connection, version) for version, _ in judged_by):
                log.info("%s: rows that it was judged by were erased: the gate asks again", self.job.id)
                return False
            if self._refused(connection, now):
                return True
            for one in found:
                is_own = self.is_look or one.version == self.candidate
                own = self.context, self.job, self.policy
                kept = keep(connection, *own, one, winner=winner, is_own=is_own, now=now)
                self.result |= kept if is_own else {}
                if (request := requests.get(one.version)) is not None and not queue_labels(
                    connection, request
                ):
                    again = self._request(connection, one.verdict)  # of what another round has left
                    if again is not None:
                        queue_labels(connection, again)
            if not found:
                self.result["reasons"] = self._nobody()
            of_job = next((one for one in found if one.version == self.candidate), None)
            outcome = "passed" if of_job is None else of_job.verdict.outcome
            status = {"passed": "done", "failed": "refused", "undecided": "undecided"}[outcome]
            jobs.finish(connection, self.job.id, status, self.result, now_us=now)
        return True

    def _is_decided(self) -> bool:
        """Close the job of a candidate that is no challenger, without loading it."""
        with write(self.context.engine) as connection:
            return self._refused(connection, now_us())

    def _refused(self, connection: Connection, now: int) -> bool:
        why = "" if self.candidate is None else self._why_unjudged(connection, self.candidate)
        if why:
            log.info("%s: %s", self.job.id, why)
            self.result |= {"promoted": False, "passed": False, "undecided": False, "reasons": [why]}
            jobs.finish(connection, self.job.id, "refused", self.result, now_us=now)
        return bool(why)

    def _nobody(self) -> list[str]:
        """Sentences of a look without a winner."""
        if self.rolling is None:
            return [self.policy.fault or "the policy compares no versions any more"]
        told = [self.rolling.sentence(one.version) for one in self.rolling.standings]
        return ["no version is shown to be better than the champion", *told, *self.rolling.left_out]

    def _request(self, connection: Connection, verdict: gate.Verdict) -> Choice | None:
        """Labels to ask for where flagged rows are too few; a part of them is held out."""
        missing = max((check.rows_missing for check in verdict.checks if check.name == "fresh"), default=0)
        share = self.options.held_out_share
        if verdict.outcome != "undecided" or not missing or not share:
            return None
        asked = list_requests(connection, model=self.job.model, status="open", limit=ASKED)
        waiting = sum(one.policy == "uniform" and not one.is_audit for one in asked)
        budget = min(math.ceil(missing / share), self.settings.labels.budget) - waiting
        if budget <= 0:  # an earlier verdict has asked for as many
            return None
        return choose_labels(
            connection,
            model=self.job.model,
            budget=budget,
            policy="uniform",
            seed=self.options.seed,
            now_us=now_us(),
            audit_share=0.0,
        )

    def _why_unjudged(self, connection: Connection, candidate: str) -> str:
        """Reason for no verdict: it is no challenger any more; empty for none."""
        found = models.get(connection, self.job.model, candidate)
        if found.status == "challenger":
            return ""
        return f"{found.id} is {found.status} by now ({found.note}): the gate leaves it so"

    # ---- inside ----------------------------------------------------------------------------------------

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        log.info("%s: %s", self.job.id, name)
        self.context.check_stop()
        self._note(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.result["seconds"][name] = round(time.perf_counter() - start, 3)

    def _note(self, stage: str) -> None:
        with write(self.context.engine) as connection:
            jobs.note(connection, self.job.id, stage=stage, result=self.result)

    def _champion(self, connection: Connection) -> models.Model:
        found = models.champion(connection, self.job.model)
        if found is None:
            raise NotFound(f"model {self.job.model!r} has no champion yet")
        return found

    def _versions(self, connection: Connection) -> tuple[Version | None, Version | None]:
        fresh = None
        if self.result.get("dataset"):
            dataset, _, number = str(self.result["dataset"]).rpartition("@")
            fresh = datasets.get(connection, dataset, int(number))
        replay = self.options.replay
        return fresh, open_if_any(connection, replay)

    def _predictors(self, connection: Connection, *versions: str) -> tuple[Predictor, ...]:
        return version_predictors(self.context.settings, connection, self.job.model, *versions)

    def _trainable(self) -> Source:
        settings, model = self.context.settings, self.job.model
        with self.context.engine.connect() as connection:
            champion = models.champion(connection, model)
        source = source_of(settings, model) if champion is None else Source.from_json(champion.source)
        if why := why_trained_elsewhere(source, self.settings.retrain):
            raise ConfigError(f"models.{model}: {why}")
        assert source is not None
        return source

    def _progress(self, at: Progress) -> None:
        self.context.check_stop()
        log.info("%s: epoch %d of %d, loss %.4f", self.job.id, at.epoch, at.epochs, at.loss)
        told = {name: round(value, 6) for name, value in dataclasses.asdict(at).items()}
        self.result |= {"progress": told, "epoch": at.epoch, "loss": told["loss"]}
        self._note("train")


def options_of(settings: RetrainSettings, params: dict[str, Any]) -> RetrainSettings:
    changes = {name: params[name] for name in OVERRIDES if params.get(name) is not None}
    return RetrainSettings.model_validate(settings.model_dump() | changes)


def set_threads(threads: int) -> None:
    """Set the threads of one operation: more make small models slower, on a busy machine ten times."""
    with suppress(ModuleNotFoundError):
        import torch

        torch.set_num_threads(threads)
