"""Real traffic of small real classifiers, with what is true of every record, for the library's figures."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.data import data_folder
from outrider.assertions import Batch


@dataclass(frozen=True)
class Traffic:
    """Answers of a model to records it was not trained on.

    Attributes
    ----------
    wrong
        Whether the answer is wrong; a request out of scope is answered wrongly whatever the answer.
    reference
        Earlier records that the model was not trained on either, all in scope.
    truth
        Position in ``classes`` of the label of each reference record.
    known, known_labels
        Embeddings and labels that neighbours are looked up in.
    strange
        Which records are out of scope, where that is known.
    """

    name: str
    batch: Batch
    wrong: NDArray[np.bool_]
    reference: Batch
    truth: NDArray[np.int64]
    classes: tuple[Any, ...]
    known: NDArray[np.float64] | None = None
    known_labels: NDArray[np.int64] | None = None
    strange: NDArray[np.bool_] | None = None


def intents() -> Traffic:
    """clinc150: TF-IDF and logistic regression over 150 intents, with requests out of scope."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    frame = pd.read_parquet(data_folder("clinc150") / "data_full.parquet")
    train, held = frame[frame.split == "train"], frame[frame.split == "val"]
    live = frame[frame.split.isin(["test", "oos_test"])]
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    known = words.fit_transform(train.text)
    model = LogisticRegression(C=20, max_iter=60, tol=1e-3).fit(known, train.label)
    space = TruncatedSVD(100, random_state=0).fit(known)

    def answered(texts: "pd.Series[str]") -> Batch:
        found = words.transform(texts)
        return _answered(
            model.predict_proba(found), model.classes_, model.decision_function(found), space.transform(found)
        )

    truth = np.searchsorted(model.classes_, held.label.to_numpy(dtype=str))
    batch = answered(live.text)
    return Traffic(
        "clinc150",
        batch,
        np.asarray(batch.column("outputs.label") != live.label.to_numpy(dtype=object)),
        answered(held.text),
        truth,
        tuple(str(one) for one in model.classes_),
        space.transform(known),
        np.searchsorted(model.classes_, train.label.to_numpy(dtype=str)),
        np.asarray(live.label == "oos"),
    )


def tweets() -> Traffic:
    """airline_tweets in time order: regression on words; two other models and two quantised twins."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import ComplementNB

    frame = pd.read_parquet(data_folder("airline_tweets") / "tweets.parquet")
    cut, end = int(len(frame) * 0.6), int(len(frame) * 0.7)
    train, held, live = frame[:cut], frame[cut:end], frame[end:]
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, sublinear_tf=True)
    model = LogisticRegression(C=5, max_iter=200).fit(words.fit_transform(train.text), train.label)
    others = {
        "letters": (
            letters,
            LogisticRegression(C=5, max_iter=200).fit(letters.fit_transform(train.text), train.label),
        ),
        "bayes": (words, ComplementNB().fit(words.transform(train.text), train.label)),
        "int8": (words, _quantised(model, 127)),
        "int2": (words, _quantised(model, 1)),
    }

    def answered(texts: "pd.Series[str]") -> Batch:
        found = words.transform(texts)
        batch = _answered(model.predict_proba(found), model.classes_, model.decision_function(found))
        return batch.with_answers(
            {
                slot: _answered(other.predict_proba(view.transform(texts)), other.classes_)
                for slot, (view, other) in others.items()
            }
        )

    truth = np.searchsorted(model.classes_, held.label.to_numpy(dtype=str))
    batch = answered(live.text)
    wrong = np.asarray(batch.column("outputs.label") != live.label.to_numpy(dtype=object))
    classes = tuple(str(one) for one in model.classes_)
    return Traffic("airline_tweets", batch, wrong, answered(held.text), truth, classes)


def reviews() -> Traffic:
    """sst2: words and logistic regression on phrases, live on 872 whole sentences; reference from dev."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    folder = data_folder("sst2")
    train, held, live = (pd.read_parquet(folder / f"{part}.parquet") for part in ("train", "dev", "test"))
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    model = LogisticRegression(C=5, max_iter=200).fit(words.fit_transform(train.text), train.label)
    batch, reference = (
        _answered(model.predict_proba(words.transform(part.text)), model.classes_) for part in (live, held)
    )
    wrong = batch.column("outputs.label") != live.label.to_numpy()
    return Traffic("sst2", batch, wrong, reference, held.label.to_numpy(), (0, 1))


def images() -> Traffic:
    """cifar10h_label_trust: a network's out-of-sample probabilities against the majority of 50 people."""
    frame = pd.read_parquet(data_folder("cifar10h_label_trust") / "labels_crowd_probs.parquet")
    probs = frame[[f"model_p_{one}" for one in range(10)]].to_numpy(dtype=np.float64)
    people = frame[[f"crowd_{one}" for one in range(10)]].to_numpy().argmax(axis=1)
    half = len(frame) // 2
    classes = np.arange(10)
    batch = _answered(probs[half:], classes)
    wrong = batch.column("outputs.label") != people[half:]
    reference = _answered(probs[:half], classes)
    return Traffic("cifar10h", batch, wrong, reference, people[:half], tuple(range(10)))


def digits(*, noise: float = 0.0) -> Traffic:
    """Handwritten digits: a network of 0 to 7; 8 and 9 are out of scope. Embedding: hidden layer.

    ``noise`` is the standard deviation of what a bad sensor adds to live images, whose pixels lie in [0, 1].
    """
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images, target = found.data[order] / 16, found.target[order]
    inside = target < 8
    position = np.arange(len(target))
    train, held = inside & (position < 700), inside & (position >= 700) & (position < 1000)
    live = position >= 1000
    images[live] += np.random.default_rng(1).normal(0, noise, images[live].shape)
    model = MLPClassifier((64,), max_iter=500, random_state=0).fit(images[train], target[train])

    def hidden(rows: NDArray[np.bool_]) -> NDArray[np.float64]:
        return np.asarray(np.maximum(images[rows] @ model.coefs_[0] + model.intercepts_[0], 0))

    def answered(rows: NDArray[np.bool_]) -> Batch:
        layer = hidden(rows)
        logits = layer @ model.coefs_[1] + model.intercepts_[1]
        answers = _answered(model.predict_proba(images[rows]), model.classes_, logits, layer)
        return answers.with_columns({"inputs.image": images[rows]})

    batch = answered(live)
    wrong = batch.column("outputs.label") != target[live]
    known, labels = images[train], target[train]
    return Traffic(
        "digits", batch, wrong, answered(held), target[held], tuple(range(8)), known, labels, ~inside[live]
    )


def census() -> tuple[Batch, NDArray[np.bool_], Batch]:
    """adult_census: later 8,561 records with a boosted model's answers, where it is wrong, earlier 24,000."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    features = [str(name) for name in frame if name != "income"]
    coded = frame[features].apply(
        lambda column: column if column.dtype.kind in "if" else pd.factorize(column)[0]
    )
    model = HistGradientBoostingClassifier(random_state=0).fit(coded[:24_000], frame.income[:24_000])
    score = model.predict_proba(coded)[:, 1]
    table = frame.assign(label=model.predict(coded), score=score, key=[str(row) for row in range(len(frame))])
    whole = Batch.from_pandas(table, model="adult", inputs=features, outputs=["label", "score"], id="key")
    wrong = (table.label != table.income).to_numpy()
    return whole.slice(24_000), wrong[24_000:], whole.slice(0, 24_000)


def incomes() -> Batch:
    """Rows 24,000 on of the census, in random order, with the answers of boosting fitted on those before."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame = pd.read_parquet(data_folder("adult_census") / "adult.parquet")
    coded = frame.drop(columns="income")
    texts = [str(name) for name in coded if not pd.api.types.is_numeric_dtype(coded[name])]
    coded[texts] = coded[texts].apply(lambda column: column.astype("category").cat.codes)
    model = HistGradientBoostingClassifier(random_state=0, categorical_features=texts)
    model.fit(coded[:24_000], frame["income"][:24_000])
    order = np.random.default_rng(0).permutation(np.arange(24_000, len(frame)))
    columns = {
        "version": ["1"] * len(order),
        "inputs.sex": frame["sex"].iloc[order].tolist(),
        "outputs.label": model.predict(coded.iloc[order]).tolist(),
    }
    return Batch.from_columns(columns, model="incomes")


def market() -> tuple[Batch, NDArray[np.bool_]]:
    """elec2: a boosted model frozen after 10,000 half-hours, on the rest; one entity, half-hourly times."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    frame = pd.read_parquet(data_folder("elec2") / "elec2.parquet")
    features = ["period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer"]
    model = HistGradientBoostingClassifier(random_state=0).fit(
        frame[features][:10_000], frame["class"][:10_000]
    )
    live = frame[10_000:].reset_index(drop=True)
    probs = model.predict_proba(live[features])
    label = probs.argmax(axis=1)
    start = np.datetime64("1996-05-07T00:00:00", "us")
    columns: dict[str, Any] = {f"inputs.{name}": live[name].to_numpy() for name in ["step", *features]}
    columns |= {"ts": start + live.step.to_numpy() * np.timedelta64(30, "m"), "entity": ["nsw"] * len(live)}
    columns |= {"outputs.label": label, "outputs.probs": probs, "outputs.score": probs.max(axis=1)}
    return Batch.from_columns(columns, model="elec2"), label != live["class"].to_numpy()


def beats() -> tuple[Batch, Batch, Batch]:
    """ecg_mitdb: symbols of the beats of 12 patients, and of 12 others in their first and last 15 minutes."""
    frame = pd.read_parquet(data_folder("ecg_mitdb") / "beats.parquet")
    frame = frame[frame.symbol != "+"].assign(record=lambda table: table.record.astype(str))
    patients = sorted(frame.record.unique())

    def of(chosen: list[str]) -> Batch:
        part = frame[frame.record.isin(chosen)].sort_values(["record", "sample"], kind="stable")
        time = np.datetime64("2026-01-05", "us") + (part.time_s.to_numpy() * 1e6).astype("timedelta64[us]")
        return Batch.from_columns(
            {"entity": list(part.record), "ts": time, "outputs.label": list(part.symbol)}, model="ecg"
        )

    others = of(patients[1::2])
    early = others.column("ts") < np.datetime64("2026-01-05T00:15:00", "us")
    return of(patients[::2]), others.take(early), others.take(~early)


def _answered(
    probs: NDArray[Any],
    classes: NDArray[Any],
    logits: NDArray[Any] | None = None,
    embedding: NDArray[Any] | None = None,
) -> Batch:
    label = classes[probs.argmax(axis=1)]
    columns: dict[str, Any] = {
        "outputs.label": list(label) if label.dtype.kind in "UO" else label,
        "outputs.probs": np.asarray(probs, dtype=np.float64),
        "outputs.score": probs.max(axis=1),
    }
    if logits is not None:
        columns["outputs.logits"] = logits
    if embedding is not None:
        columns["outputs.embedding"] = embedding
    return Batch.from_columns(columns, model="m")


def _quantised(model: Any, levels: int) -> Any:
    """Copy of a linear model whose weights are rounded to ``levels`` steps on either side of 0, by class."""
    from copy import deepcopy

    twin = deepcopy(model)
    scale = np.abs(twin.coef_).max(axis=1, keepdims=True) / levels
    twin.coef_ = np.round(twin.coef_ / scale) * scale
    return twin
