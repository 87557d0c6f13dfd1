"""Sections of one model: ``[models.<name>]`` and the tables below."""

import hashlib
import json
import re
from collections.abc import Collection
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from outrider.dataops.ledger.group_columns import attribute_of, columns_of
from outrider.dataops.ledger.slot_names import OTHER_SLOTS
from outrider.dataops.model_kinds.source import Kind as SourceKind
from outrider.dataops.model_kinds.source import Source, Task
from outrider.dataops.redaction.kinds import KINDS, Kind, column_fault, kind_fault
from outrider.dataops.training.methods import why_untrained
from outrider.dataops.triggers.decision import RunGuards
from outrider.errors import ConfigError

from .gate_sections import GateSettings
from .intake_sections import ModelIntakeSettings
from .sections import Section
from .training_sections import DistillSettings, LoraSettings
from .trigger_sections import TriggerSettings
from .upload_section import UploadSettings


class LabelSettings(Section):
    """Selection of records for labelling."""

    budget: int = Field(default=200, ge=0, description="labels a request buys unless it says otherwise")
    policy: Literal["adaptive", "uniform", "bal", "badge", "uncertainty", "random"] = "adaptive"
    audit_share: float = Field(
        default=0.1, ge=0, le=1, description="share of every budget that takes any record alike"
    )
    label_group_s: float = Field(
        default=600.0,
        gt=0,
        description="records of an entity within such a stretch of event time are near-duplicates: a round's "
        "policy takes one",
    )


class SliceWeightSettings(Section):
    """Weight of a slice in training."""

    where: dict[str, str | int | float | bool] = Field(min_length=1, description="values of attributes")
    weight: float = Field(gt=0, le=1e6, description="of each of its rows, others having 1")


class RetrainSettings(Section):
    """Fine-tuning of a challenger; off by default."""

    enabled: bool = False
    mode: Literal["automatic", "suggest"] = Field(
        default="automatic", description="start jobs, or only suggest them to a person"
    )
    labelled_flags: int = Field(default=200, ge=1, description="labelled flagged records that start a job")
    triggers: TriggerSettings = TriggerSettings()
    cooldown_s: float = Field(default=3600.0, ge=0)
    daily_budget: int = Field(default=4, ge=1, description="automatic jobs in 24 hours")
    failures: int = Field(
        default=3, ge=0, description="automatic jobs refused or failed in a row, then one a day; 0 is any"
    )
    replay: str | None = Field(default=None, description="dataset replayed with the fresh rows")
    epochs: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    replay_ratio: float = Field(default=2.0, ge=0, description="replayed rows per fresh row")
    batch_rows: int = Field(default=64, ge=1)
    rehearsal: Literal["stratified", "balanced", "uniform"] = Field(
        default="stratified",
        description="how replayed rows are drawn: of each class its share and one at least, as many of each, "
        "or without regard to classes",
    )
    class_weights: Literal["balanced"] | dict[str, Annotated[float, Field(gt=0, le=1e6)]] | None = Field(
        default=None, description="weights of rows by class: balanced, or a number for each named class"
    )
    slice_weights: tuple[SliceWeightSettings, ...] = Field(
        default=(), description="weights of rows by the values of attributes; those of several multiply"
    )
    weak_weight: float = Field(
        default=1.0, gt=0, le=1, description="weight of a weak label relative to a human one"
    )
    stop_share: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of the entities to learn from that are kept to find the best epoch; 0 is none",
    )
    stop_patience: int = Field(
        default=3, ge=1, description="epochs without a better loss on these rows, after which training ends"
    )
    min_rows: int = Field(default=2, ge=1, description="rows without which nothing is trained")
    held_out_share: float = Field(default=0.2, ge=0, lt=1, description="fresh rows kept for the gate")
    rows: Literal["flagged", "labelled"] = Field(
        default="flagged", description="which labelled records are learned from: the flagged ones, or all"
    )
    weak_confidence: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="corrections by assertions of at least this confidence are learned from too; 0 is none",
    )
    move_leaks: Literal["none", "exact", "all"] = Field(
        default="exact",
        description="leaks that move a new row to the side of its match: none, those of entities and equal "
        "inputs, or near-duplicates too; the others are named",
    )
    augment: str | None = Field(
        default=None, description="file.py:callable, (inputs, generator) -> inputs, on every training batch"
    )
    average: float = Field(
        default=0.0, ge=0, lt=1, description="share of the last steps whose weights are averaged"
    )
    trains: tuple[str, ...] = Field(
        default=(),
        description="parameters or submodules that training may change; the rest is shared with the champion",
    )
    trainer: str = Field(
        default="here",
        description="who trains: this service (here), your file.py:fine_tune in it, or whoever answers "
        "retrain.requested with a version (external)",
    )
    deadline_s: float = Field(
        default=86_400.0, gt=0, description="time for the process of a job, or for a version made elsewhere"
    )
    memory_mb: int | None = Field(
        default=None, ge=512, description="memory of a job's process; 80 % of the machine's by default"
    )
    seed: int = Field(default=0, ge=0)
    method: Literal["full", "lora", "distill"] | None = Field(
        default=None,
        description="what learns: all weights, an adapter, or another architecture; default an adapter where "
        "the champion has one or writes texts, else all weights",
    )
    objective: Literal["sft", "dpo"] = Field(
        default="sft",
        description="of a language model: write the corrected answer, or prefer it to the model's own",
    )
    beta: float = Field(
        default=0.1, gt=0, description="of dpo: how little the model may move for a preference"
    )
    architecture: str | None = Field(
        default=None, description="of distill: file.py:callable or folder that learns the champion's answers"
    )
    lora: LoraSettings = LoraSettings()
    distill: DistillSettings = DistillSettings()

    @model_validator(mode="after")
    def _one_method(self) -> "RetrainSettings":
        if self.trainer not in ("here", "external") and not re.fullmatch(r".+\.py:\w+", self.trainer):
            raise ValueError(f"trainer: here, external or file.py:fine_tune expected, got {self.trainer!r}")
        if self.trainer != "here" and self.method is not None:
            raise ValueError(
                f"trainer and method exclude each other, got {self.trainer!r} and {self.method!r}"
            )
        if (self.method == "distill") != (self.architecture is not None):
            raise ValueError("method = 'distill' and architecture belong together: both or none expected")
        return self

    @property
    def guards(self) -> RunGuards:
        return RunGuards(self.cooldown_s, self.daily_budget, self.failures, self.mode == "automatic")

    @property
    def active_triggers(self) -> tuple[str, ...]:
        """Names of the active triggers; empty if retraining is disabled."""
        return ("labelled_flags", *self.triggers.active) if self.enabled else ()


class WatchSettings(Section):
    """Comparison of a new champion with the former one, after its promotion."""

    records: int = Field(
        default=10_000, ge=0, description="live records that the former champion answers on; 0 is no watch"
    )
    hours: float = Field(
        default=168.0, gt=0, le=8760, description="time after which the watch ends; labels count until then"
    )
    error: float = Field(
        default=0.01, gt=0, le=0.1, description="chance that a watch proposes to roll back an equal champion"
    )
    auto_rollback: bool = Field(
        default=False, description="roll back a champion that is proven to be worse, instead of proposing it"
    )


class JudgeSettings(Section):
    """LLM judge of records; its answer is a column for assertions."""

    prompt: str | None = Field(default=None, description="template with {inputs.*}, {outputs.*}, {attrs.*}")
    prompt_file: str | None = Field(default=None, description="file that holds the template")
    answer: dict[str, Literal["number", "integer", "boolean", "string"] | tuple[str, ...]] = Field(
        description="fields of the answer: a kind, or the values allowed"
    )
    url: str | None = Field(default=None, description="address of chat/completions")
    model: str = Field(default="", description="name of the model at that address")
    key_env: str = Field(default="OUTRIDER_JUDGE_KEY", description="environment variable with its key")
    predictor: str | None = Field(default=None, description="file.py:callable, Batch -> fields of the answer")
    reads: tuple[str, ...] = Field(default=(), description="columns it gets in addition to the prompt's")
    rate: float = Field(default=1.0, ge=0, le=1, description="share of the records that it is asked about")
    when_flagged: bool = Field(default=False, description="asked about flagged records too, whatever rate")
    budget_per_day: int = Field(default=1000, ge=0, description="questions a day, UTC")
    tokens_per_day: int | None = Field(default=None, ge=0)
    deadline_s: float = Field(default=30.0, gt=0, description="for one question")
    parallel: int = Field(default=4, ge=1, le=64, description="questions under way at a time")
    max_tokens: int = Field(default=256, ge=1, description="of an answer")
    constrain: bool = Field(default=True, description="send the schema of the answer as response_format")
    patience_s: float = Field(default=60.0, ge=0, description="wait while no question gets an answer")
    max_lag_s: float = Field(default=3600.0, gt=0, description="older records are not asked about")
    field: str | None = Field(default=None, description="field held against labels; default the first")
    label: str | None = Field(default=None, description="field of the labels; default the same name")

    @model_validator(mode="after")
    def _consistent(self) -> "JudgeSettings":
        if (self.url is None) == (self.predictor is None):
            raise ValueError("url or predictor expected, and only one of them")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: an http:// or https:// address expected, got {self.url!r}")
        if self.prompt is not None and self.prompt_file is not None:
            raise ValueError("prompt and prompt_file exclude each other: name one")
        if self.url is not None and self.prompt is None and self.prompt_file is None:
            raise ValueError("url needs a prompt (or prompt_file), the question to the judge")
        if self.prompt is None and self.prompt_file is None and not self.reads:
            raise ValueError("reads or a prompt expected: which columns the judge gets")
        if not self.answer or "outcome" in self.answer or any(not kind for kind in self.answer.values()):
            raise ValueError("answer: at least one field expected, none named outcome, none without values")
        if self.field is not None and self.field not in self.answer:
            raise ValueError(f"field: one of {', '.join(self.answer)} expected, got {self.field!r}")
        return self

    @property
    def compared(self) -> tuple[str, str]:
        """Answer field and label field that are compared with each other."""
        field = self.field or next(iter(self.answer))
        return field, self.label or field


class LiveSettings(Section):
    """Budget of live behavioral tests, and the endpoint of a model without a replica."""

    rows_per_s: float | None = Field(
        default=None, gt=0, description="extra rows asked per second of traffic, all live tests together"
    )
    endpoint: str | None = Field(
        default=None, description="address that answers as production does; never asked unless named here"
    )
    key_env: str = Field(default="OUTRIDER_MODEL_KEY", description="environment variable with its key")
    deadline_s: float = Field(default=10.0, gt=0, le=300, description="for one request to it")

    @model_validator(mode="after")
    def _consistent(self) -> "LiveSettings":
        if self.endpoint is None:
            return self
        if not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(f"endpoint: an http:// or https:// address expected, got {self.endpoint!r}")
        if self.rows_per_s is None:
            raise ValueError("endpoint needs rows_per_s: how many rows per second production may be asked")
        return self


class LatencySettings(Section):
    """Objective for a record's age when it is judged, and backfill of skipped records."""

    slo_s: float | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="age at verdict that is wanted; live tests, challengers, "
        "judges, then records are shed for it",
    )
    backfill_s: float = Field(
        default=86_400.0, ge=0, description="a skipped record older than this is not judged any more"
    )


class SourceSettings(Section):
    """Source of a model or challenger: at most one of five kinds."""

    architecture: str | None = Field(default=None, description="file.py:callable returning nn.Module")
    predictor: str | None = Field(default=None, description="file.py:callable, Batch -> outputs")
    folder: str | None = Field(default=None, description="folder of a Hugging Face model with its tokenizer")
    onnx: str | None = Field(default=None, description="ONNX file; outrider convert makes one of others")
    endpoint: str | None = Field(
        default=None, description="address of a model elsewhere: /v2/models/NAME or /v1/chat/completions"
    )
    weights: str | None = Field(default=None, description="safetensors of the first version")
    adapter: str | None = Field(
        default=None, description="folder of a PEFT adapter (LoRA or prefix tuning) over the weights"
    )
    adapted_from: str | None = Field(
        default=None, description="MODEL or MODEL@VERSION whose weights it was made from: they share a trunk"
    )
    shares: tuple[str, ...] = Field(
        default=(), description="submodules whose weights are those of adapted_from, checked by digest"
    )
    recipe: tuple[str, ...] = Field(
        default=(), description="what is done to the module once it is loaded; outrider compress finds one"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="of its kind; docs/shadow-models.md")

    @property
    def kind(self) -> SourceKind | None:
        """Kind of the configured source; None without one."""
        named: dict[SourceKind, str | None] = {
            "torch": self.architecture, "hf": self.folder, "onnx": self.onnx,
            "function": self.predictor, "endpoint": self.endpoint,
        }  # fmt: skip
        return next((kind for kind, reference in named.items() if reference), None)

    @property
    def reference(self) -> str | None:
        """File, folder, callable or URL of the source; None without one."""
        return self.architecture or self.folder or self.onnx or self.predictor or self.endpoint

    @model_validator(mode="after")
    def _one_kind(self) -> "SourceSettings":
        kinds = ("architecture", "predictor", "folder", "onnx", "endpoint")
        named = [kind for kind in kinds if getattr(self, kind)]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} exclude each other: name one")
        if self.endpoint and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(f"endpoint: an http:// or https:// address expected, got {self.endpoint!r}")
        if self.endpoint and urlsplit(self.endpoint).password is not None:
            raise ValueError(
                "endpoint: an address without a password expected: addresses are kept and shown; name the "
                "variable of the environment that holds the key as options.key_env"
            )
        if self.shares and not self.adapted_from:
            raise ValueError("shares needs adapted_from: whose weights they are")
        return self


class ChallengerSettings(SourceSettings):
    """Challenger that shadows the champion; omitted settings are the model's."""

    inputs: tuple[str, ...] | None = None
    classes: tuple[int | str, ...] | None = None
    shadow_s: float | None = Field(
        default=None, gt=0, description="the shadow test ends after this time with a recommendation"
    )
    shadow_rows: int | None = Field(default=None, ge=1, description="or after this many records")


class ShadowSettings(Section):
    """Shadow models: deadlines, batches and comparison."""

    deadline_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="for one step of work on a block, such as a pass; then the process is killed",
    )
    memory_mb: int | None = Field(
        default=None,
        ge=256,
        description="memory of an engine process with an uploaded version; by default four times the peak of "
        "the model's other engines, and 1500 at least",
    )
    batch_rows: int | None = Field(
        default=None, ge=1, description="records in a forward pass at most; default what is measured as best"
    )
    noise_rate: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of records that champion and challengers answer twice, for the noise floor",
    )
    agreement: float = Field(
        default=0.99, gt=0, le=1, description="agreement beyond noise from which on answers count as alike"
    )
    score_tolerance: float = Field(
        default=0.01,
        ge=0,
        description="scores that are farther apart differ, as a share of the spread of the champion's",
    )
    agree: tuple[str, ...] = Field(
        default=(),
        description="what of texts must agree: words, facts, a path of JSON ($.decision), or "
        "classes=approved,rejected; default whole texts",
    )

    @field_validator("agree")
    @classmethod
    def _is_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from outrider.assertions.comparison.agreement import EMBEDDING
        from outrider.assertions.comparison.items import checked_agree

        if EMBEDDING in value:
            raise ValueError("agree: embedding is for outrider compare --embed; a service embeds no texts")
        try:
            return checked_agree(value) if value else ()
        except ConfigError as error:
            raise ValueError(str(error)) from None


class ValidationSettings(Section):
    """Checks of dataset versions in addition to the expectations."""

    checks: tuple[str, ...] = Field(
        default=(),
        description="files with expectations of your own, subclasses of Great Expectations' classes; they "
        "run in a process of their own",
    )
    deadline_s: float = Field(
        default=300.0, gt=0, description="for one validation with checks; then its process is killed"
    )
    class_shift: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="share of rows that may change class against the version before; 1 is any",
    )
    range_growth: float = Field(
        default=4.0,
        gt=0,
        description="widths of the range of the version before that values of a column may go beyond it; inf "
        "is any",
    )
    against_parent: Literal["critical", "warning"] = Field(
        default="warning", description="critical refuses the version where one of these two is exceeded"
    )


class ModelSettings(SourceSettings):
    """One monitored model."""

    version: str = "1"
    task: Task = "classification"
    challengers: dict[str, ChallengerSettings] = Field(
        default_factory=dict, description="by version: models that answer the same records"
    )
    shadow: ShadowSettings = ShadowSettings()
    inputs: tuple[str, ...] = Field(default=(), description="columns fed to the module, in order")
    target: str = "label"
    classes: tuple[int | str, ...] = ()
    score_of: Literal["answer", "positive"] = Field(
        default="answer",
        description="what outputs.score is the confidence in: the answer, or the last of two classes",
    )
    assertions: tuple[str, ...] = ()
    behavior: tuple[str, ...] = ()
    incident_suite: str | None = Field(
        default=None,
        description="suite file of cases made from flagged records; default behavior/incidents.suite.json, "
        "with several models behavior/<model>.incidents.suite.json",
    )
    slice_by: str | None = None
    slices: tuple[str, ...] = Field(
        default=(),
        max_length=20,
        description="values of slice_by that have metrics of their own; others count under __other__",
    )
    group_by: tuple[str, ...] = Field(
        default=(),
        max_length=5,
        description='columns whose groups are compared over time; "sex, region" makes each combination a '
        "group. The first 20 groups of each are counted by name",
    )
    columns: dict[str, str] = Field(default_factory=dict, description="declared column types")
    redact: dict[str, tuple[Kind, ...]] = Field(
        default_factory=dict,
        description="by column: kinds of values that placeholders take the place of before they are stored",
    )
    expectations: str | tuple[dict[str, Any], ...] = ()
    validation: ValidationSettings = ValidationSettings()
    judges: dict[str, JudgeSettings] = Field(default_factory=dict)
    live: LiveSettings = LiveSettings()
    intake: ModelIntakeSettings = ModelIntakeSettings()
    latency: LatencySettings = LatencySettings()
    labels: LabelSettings = LabelSettings()
    retrain: RetrainSettings = RetrainSettings()
    uploads: UploadSettings = UploadSettings()
    gate: GateSettings = GateSettings()
    watch: WatchSettings = WatchSettings()

    @field_validator("incident_suite")
    @classmethod
    def _is_suite_file(cls, value: str | None) -> str | None:
        if value is not None and not value.endswith(".suite.json"):
            raise ValueError(f"a suite file is called NAME.suite.json, got {value!r}")
        return value

    @model_validator(mode="after")
    def _slices_of_an_attribute(self) -> "ModelSettings":
        if self.slices and self.slice_by is None:
            raise ValueError("slices: slice_by expected beside it, the attribute that has these values")
        return self

    @field_validator("group_by")
    @classmethod
    def _names_groups(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = [attribute_of(one) for one in value]
        for name, one in zip(named, value, strict=True):
            columns = columns_of(name)
            if "" in columns or len(set(columns)) < len(columns):
                raise ValueError(
                    f"one column, or distinct ones with commas between them, expected, got {one!r}"
                )
        if len({frozenset(columns_of(name)) for name in named}) < len(named):
            raise ValueError(f"each grouping once expected, got {', '.join(map(repr, value))}")
        return tuple(named)

    @field_validator("redact", mode="before")
    @classmethod
    def _redactable(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        for column, kinds in value.items():
            if fault := column_fault(column):
                raise ValueError(f"{column}: {fault}")
            if not isinstance(kinds, list | tuple) or not kinds:
                raise ValueError(f"{column}: a list of {', '.join(KINDS)} expected, got {kinds!r}")
            for fault in filter(None, map(kind_fault, map(str, kinds))):
                raise ValueError(f"{column}: {fault}")
        return value

    @model_validator(mode="after")
    def _redacts_no_payloads(self) -> "ModelSettings":
        for column in self.redact.keys() & self.columns.keys():
            if re.match(r"(text|binary)\??$|image\(", self.columns[column]):
                raise ValueError(
                    f"redact.{column}: a column of texts expected, got {self.columns[column]}: a payload may "
                    "be fetched and kept as it lies; declare the column as string and send its text"
                )
        return self

    @property
    def key_variables(self) -> dict[str, str]:
        """Environment variables with keys of judges and endpoints, by setting."""
        sections: dict[str, SourceSettings] = {"": self}
        sections |= {f"challengers.{version}.": one for version, one in self.challengers.items()}
        found = {
            f"{name}options.key_env": str(one.options["key_env"])
            for name, one in sections.items()
            if "key_env" in one.options
        }
        found |= {f"judges.{name}.key_env": judge.key_env for name, judge in self.judges.items()}
        return found | {"live.key_env": self.live.key_env}

    @property
    def positive_class(self) -> int | str | None:
        """Class whose probability ``outputs.score`` is; None if the score is the confidence in the answer."""
        return self.classes[-1] if self.score_of == "positive" else None

    @property
    def is_number(self) -> bool | None:
        """True if the target is a number, False if it is a class; None: decided by its values."""
        if self.task == "scoring":
            return True
        return False if self.task == "classification" and "task" in self.model_fields_set else None

    @property
    def declared_inputs(self) -> tuple[str, ...]:
        """Column names of the model's inputs, with the prefix ``inputs.``."""
        return tuple(f"inputs.{name.removeprefix('inputs.')}" for name in self.inputs)

    def may_be_null(self, known: Collection[str]) -> list[str]:
        """Inputs that may be null in training rows: declared with ``?`` or, except for torch and
        hf models (null becomes NaN), in ``known``."""
        found = []
        for name in self.declared_inputs:
            field, kind = name.removeprefix("inputs."), self.columns.get(name)
            learned = field in known and kind is None and self.kind not in ("torch", "hf")
            if learned or (kind is not None and kind.endswith("?")):
                found.append(field)
        return found

    @property
    def needed_inputs(self) -> tuple[str, ...]:
        """Inputs without which a record is refused; empty if missing inputs are flagged instead."""
        return self.declared_inputs if self.intake.missing_inputs == "refuse" else ()

    @property
    def group_columns(self) -> frozenset[str]:
        """Columns whose values are classes or names of groups."""
        grouped = (f"inputs.{column}" for names in self.group_by for column in columns_of(names))
        return frozenset([f"outputs.{self.target}", *grouped])

    @property
    def rules_digest(self) -> str:
        """Hash of the rules for dataset rows; a stored refusal holds only under the same rules."""
        rules = self.model_dump(
            mode="json", include={"target", "classes", "inputs", "columns", "expectations"}
        )
        return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:16]

    def training_command(self, model: str) -> str:
        """Command to run after a suggestion to retrain."""
        is_trained = self.is_trained_here or self.retrain.trainer == "external"
        return f"outrider {'retrain' if is_trained else 'dataset commit'} {model}"

    @property
    def is_trained_here(self) -> bool:
        """True if retraining jobs of this service train the model."""
        return not self.why_untrained

    @property
    def why_untrained(self) -> str:
        """Reason why this service cannot train the model; empty if it can."""
        kind, reference, given = self.kind, self.reference, self.retrain
        declared = None
        if kind is not None and reference is not None:
            declared = Source(kind, reference, task=self.task, adapter=self.adapter)
        return why_untrained(declared, {"method": given.method, "trainer": given.trainer})

    @property
    def waits_for_answers(self) -> bool:
        """True if a mirrored request waits for its recorded response, because no replica answers it."""
        answers = self.intake.answers or ("replica" if self.kind else "joined")
        return answers == "joined"

    @model_validator(mode="after")
    def _consistent(self) -> "ModelSettings":
        if self.live.endpoint and self.kind:
            raise ValueError(
                "live.endpoint is for a model that only production has; this one has a replica to ask: "
                "remove live.endpoint, or architecture, folder, onnx, predictor and endpoint"
            )
        if self.classes and isinstance(self.retrain.class_weights, dict):
            from outrider.assertions.comparison.matching import class_numbers

            for name in self.retrain.class_weights:
                if class_numbers([name], self.classes)[0] < 0:
                    known = ", ".join(map(repr, self.classes[:10]))
                    raise ValueError(
                        f"retrain.class_weights: one of the classes {known} expected, got {name!r}"
                    )
        if self.architecture and not self.weights:
            raise ValueError("architecture needs weights: the safetensors file of version 1")
        if self.architecture and not self.inputs:
            raise ValueError("architecture needs inputs: the columns fed to the module")
        if self.architecture and self.task == "classification" and not self.classes:
            raise ValueError("task = 'classification' needs classes: the value of each output of the module")
        if self.folder and not self.inputs:
            raise ValueError("folder needs inputs: the field with the text, or two that are read as a pair")
        return self

    @model_validator(mode="after")
    def _score_of_a_class(self) -> "ModelSettings":
        if self.score_of == "positive" and self.task == "scoring":
            raise ValueError(
                "score_of = 'positive' needs classes to answer, but task = 'scoring' answers numbers"
            )
        if self.score_of == "positive" and len(self.classes) != 2:
            raise ValueError(
                f"score_of = 'positive' needs two classes, of which the last is the positive one, got "
                f"{list(self.classes)}; name them in classes"
            )
        return self

    @model_validator(mode="after")
    def _challenger_names(self) -> "ModelSettings":
        for version in self.challengers:
            if version == self.version:
                raise ValueError(
                    f"challengers.{version}: the model's own version is called so: choose another"
                )
            if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", version) or version.startswith(OTHER_SLOTS):
                raise ValueError(
                    f"challengers.{version}: a name of letters, digits, points and dashes expected, "
                    f"not one that begins with {', '.join(OTHER_SLOTS)}"
                )
        return self
