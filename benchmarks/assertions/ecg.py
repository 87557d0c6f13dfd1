"""ECG: a rhythm classifier under the assertion that a rhythm does not change and change back within 30 s.

A small network labels ten-second windows that slide over each recording (``ecg_cinc2017``; by recording a
third to train, a third as the unlabelled stream, a third to test, in all three rotations of several splits).
Measured: how much more often flagged windows are wrong, and what retraining with corrections does to it,
beside training longer and beside the same windows with the labels that the model gave them itself. Intervals
are 95 % by bootstrap over recordings. Beats of ``ecg_mitdb`` show how often a short run is genuine.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from benchmarks.data import data_folder
from benchmarks.figure import Figure, show_table
from outrider.assertions import Batch, Checker, Consistency

from ._ecg_windows import STRIDE_S, WINDOW_S, Floats, Windows, read_windows

CLASSES = ("N", "A", "O", "~")
WITHIN_S = 30.0
SEEDS, FIRST_SEED = 10, 100
"""Splits 0 to 4 served to decide what is measured; the figures are of others."""
STEPS, MORE_STEPS = 600, 300
ARMS = ("longer", "self", "weak", "human", "self_all", "weak_all")
"""What training goes on with: nothing new; the flagged windows of the stream as predicted, as corrected, and
as they are (what buying labels would give); all windows of the stream as predicted, and with corrections."""
COMPARED = (("weak", "base"), ("weak", "longer"), ("weak", "self"), ("weak", "human"))
COMPARED_ALL = (("weak_all", "base"), ("weak_all", "longer"), ("weak_all", "self_all"))
RESAMPLES = 10_000
CLAIM = 1 - 0.05 / 4
"""Level at which a gain is claimed: two tasks, two ways to retrain."""
Ints = NDArray[np.int64]


RHYTHM = Consistency(
    id="outputs.label", within=WITHIN_S, checks=("flicker",), corrects=("flicker",), name="rhythm"
)
STEADY = Checker([RHYTHM])
"""``rhythm.flicker``: a rhythm is gone and back within 30 s, so what stands between is wrong."""


def flagged_windows(
    record: NDArray[np.str_], start_s: Floats, said: NDArray[np.str_]
) -> tuple[Ints, list[str]]:
    """Windows that the assertion flags, ascending, and what each should be: the surest correction."""
    micros = np.rint(start_s * 1e6).astype("datetime64[us]")
    batch = Batch.from_columns(
        {
            "id": [str(row) for row in range(len(record))],
            "entity": record.tolist(),
            "ts": micros,
            "outputs.label": said.tolist(),
        },
        model="ecg",
    )
    weak = STEADY.check(batch).weak_labels
    order = np.lexsort([np.arange(len(weak)), -weak.confidence, weak.row])
    rows, first = np.unique(weak.row[order], return_index=True)
    return rows, [str(weak.value[order[index]]) for index in first]


@dataclass
class Tallies:
    """Per recording, over all runs in which it was tested: shape (recordings,) each."""

    windows: Floats
    wrong: Floats
    flagged: Floats
    flagged_wrong: Floats
    right: dict[str, Floats]
    corrections: Floats
    corrections_right: Floats
    fold_ratios: list[float] = field(default_factory=list)
    """Error rate of flagged windows over base rate, per run."""


def run(
    windows: Windows,
    *,
    seeds: int = SEEDS,
    first_seed: int = FIRST_SEED,
    arms: tuple[str, ...] = ARMS,
    binary: bool = False,
) -> Tallies:
    """Train, flag and retrain in all rotations of ``seeds`` splits.

    Parameters
    ----------
    binary
        Atrial fibrillation against everything else, instead of the four classes.
    """
    torch.set_num_threads(1)
    names = ("N", "A") if binary else CLASSES
    label = np.where(windows.label == "A", "A", "N") if binary else windows.label
    truth = np.array([names.index(value) for value in label])
    recordings, of = np.unique(windows.record, return_inverse=True)
    rhythm = truth[np.unique(of, return_index=True)[1]]
    zero = np.zeros(len(recordings))
    tallies = Tallies(
        zero.copy(), zero.copy(), zero.copy(), zero.copy(),
        {arm: zero.copy() for arm in ("base", *arms)}, zero.copy(), zero.copy(),
    )  # fmt: skip
    for seed in range(first_seed, first_seed + seeds):
        third = _thirds(rhythm, seed)[of]
        for turn in range(3):
            parts = [np.flatnonzero(third == (turn + part) % 3) for part in range(3)]
            _fold(tallies, windows, truth, names, of, parts, arms, seed=3 * seed + turn)
    return tallies


def _thirds(rhythm: Ints, seed: int) -> Ints:
    """Third of every recording, each rhythm spread evenly."""
    rng = np.random.default_rng(seed)
    third = np.zeros(len(rhythm), dtype=np.int64)
    for value in np.unique(rhythm):
        members = rng.permutation(np.flatnonzero(rhythm == value))
        third[members] = np.arange(len(members)) % 3
    return third


def _fold(
    tallies: Tallies,
    windows: Windows,
    truth: Ints,
    names: tuple[str, ...],
    of: Ints,
    parts: list[Ints],
    arms: tuple[str, ...],
    *,
    seed: int,
) -> None:
    train, stream, test = parts
    mean, spread = windows.features[train].mean(axis=0), windows.features[train].std(axis=0) + 1e-9
    inputs = torch.tensor(np.clip((windows.features - mean) / spread, -5, 5), dtype=torch.float32)
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Linear(inputs.shape[1], 32), torch.nn.ReLU(), torch.nn.Linear(32, len(names))
    )
    _train(network, inputs[train], truth[train], steps=STEPS, seed=seed)
    said = _answers(network, inputs)
    told = np.array(names)[said]
    found, _ = flagged_windows(windows.record[test], windows.start_s[test], told[test])
    wrong = said[test] != truth[test]
    recording = of[test]
    size = len(tallies.windows)
    tallies.windows += np.bincount(recording, minlength=size)
    tallies.wrong += np.bincount(recording, wrong, size)
    tallies.flagged += np.bincount(recording[found], minlength=size)
    tallies.flagged_wrong += np.bincount(recording[found], wrong[found], size)
    tallies.fold_ratios.append(float(wrong[found].mean() / wrong.mean()))
    tallies.right["base"] += np.bincount(recording, ~wrong, size)
    if not arms:
        return
    rows, values = flagged_windows(windows.record[stream], windows.start_s[stream], told[stream])
    new = stream[rows]
    corrected = np.array([names.index(value) for value in values], dtype=np.int64)
    tallies.corrections += np.bincount(of[new], minlength=size)
    tallies.corrections_right += np.bincount(of[new], corrected == truth[new], size)
    mended = said.copy()
    mended[new] = corrected
    given = {
        "longer": (stream[:0], truth[:0]),
        "self": (new, said[new]),
        "weak": (new, corrected),
        "human": (new, truth[new]),
        "self_all": (stream, said[stream]),
        "weak_all": (stream, mended[stream]),
    }
    for arm in arms:
        rows = np.concatenate([train, given[arm][0]])
        target = np.concatenate([truth[train], given[arm][1]])
        tuned = copy.deepcopy(network)
        _train(tuned, inputs[rows], target, steps=MORE_STEPS, seed=seed + 1000)
        right = _answers(tuned, inputs[test]) == truth[test]
        tallies.right[arm] += np.bincount(recording, right, size)


def _train(network: torch.nn.Module, inputs: torch.Tensor, target: Ints, *, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    wanted = torch.from_numpy(target)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(inputs), (64,), generator=generator)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(inputs[rows]), wanted[rows])
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no annotation here
        optimiser.step()


def _answers(network: torch.nn.Module, inputs: torch.Tensor) -> Ints:
    with torch.inference_mode():
        return np.asarray(network(inputs).argmax(dim=1).numpy(), dtype=np.int64)


# ---- figures -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def error_ratio(tallies: Tallies) -> Estimate:
    """How many times as often flagged windows are wrong as windows are in general."""
    top, base = (tallies.flagged_wrong, tallies.flagged), (tallies.wrong, tallies.windows)

    def ratio(draw: Ints) -> Floats:
        flagged = top[0][draw].sum(axis=-1) / top[1][draw].sum(axis=-1)
        return np.asarray(flagged / (base[0][draw].sum(axis=-1) / base[1][draw].sum(axis=-1)))

    return _bootstrap(len(tallies.windows), ratio)


def accuracy_change(tallies: Tallies, arm: str, against: str, *, level: float = 0.95) -> Estimate:
    """Accuracy of one arm less that of another, in points, with its interval of ``level``."""
    gain = tallies.right[arm] - tallies.right[against]
    return _bootstrap(
        len(gain),
        lambda draw: np.asarray(100 * gain[draw].sum(axis=-1) / tallies.windows[draw].sum(axis=-1)),
        level,
    )


def _bootstrap(recordings: int, figure: Callable[[Ints], Floats], level: float = 0.95) -> Estimate:
    rng = np.random.default_rng(0)
    drawn = figure(rng.integers(recordings, size=(RESAMPLES, recordings)))
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(figure(np.arange(recordings))), float(low), float(high))


def genuine_returns(episodes: pd.DataFrame) -> pd.DataFrame:
    """Rhythm episodes of ``ecg_mitdb``: per rhythm all of them, and those that end the same rhythm's return.

    An episode B of A→B→A that lasts less than 30 s is a genuine run on which the assertion fires.
    """
    rows = []
    for _, record in episodes.groupby("record", sort=False):
        rhythm = record["rhythm"].to_numpy()
        returns = np.zeros(len(record), dtype=bool)
        returns[1:-1] = rhythm[:-2] == rhythm[2:]
        fires = returns & (record["duration_s"].to_numpy() <= WITHIN_S)
        rows.append(pd.DataFrame({"rhythm": rhythm, "episodes": 1, "fires": fires.astype(int)}))
    return pd.concat(rows).groupby("rhythm").sum().sort_values("fires", ascending=False)


def faultless_flags(beats: pd.DataFrame) -> tuple[int, int]:
    """(windows, flagged ones) where a faultless detector says each window's most frequent true rhythm."""
    record, start, said = [], [], []
    for name, part in beats.groupby("record", sort=False):
        at, rhythm = part["time_s"].to_numpy(), part["rhythm"].to_numpy()
        for begin in range(0, int(at[-1]) - WINDOW_S, STRIDE_S):
            here = rhythm[np.searchsorted(at, begin) : np.searchsorted(at, begin + WINDOW_S)]
            if len(here):
                values, counts = np.unique(here.astype(str), return_counts=True)
                record.append(str(name))
                start.append(float(begin))
                said.append(str(values[counts.argmax()]))
    found, _ = flagged_windows(np.array(record), np.array(start), np.array(said))
    return len(record), len(found)


TASKS = {"four_rhythms": "four rhythms", "af": "AF or not"}


def show_task(key: str, tallies: Tallies, data: str) -> tuple[str, list[str]]:
    """Figures of one task; its row of the first table and those of the second."""
    stem, folds = f"assertions.ecg.{key}", np.array(tallies.fold_ratios)
    ratio, name = error_ratio(tallies), TASKS[key]
    base = float(tallies.wrong.sum() / tallies.windows.sum())
    flagged = float(tallies.flagged_wrong.sum() / tallies.flagged.sum())
    share = float(tallies.flagged.sum() / tallies.windows.sum())
    right = float(tallies.corrections_right.sum() / tallies.corrections.sum())
    Figure(
        f"{stem}.ratio", ratio.value, "times as often wrong", "all windows", ratio.value, 1.4,
        n=int(tallies.flagged.sum()), low=ratio.low, high=ratio.high, data=data,
    ).show()  # fmt: skip
    for what, value, n in (
        ("flagged_wrong", flagged, tallies.flagged),
        ("corrections_right", right, tallies.corrections),
    ):
        against = f"{base:.3f} of all are wrong"
        Figure(f"{stem}.{what}", value, "share", against, value / base, n=int(n.sum()), data=data).show()
    first = (
        f"| {name} | {base:.3f} | {flagged:.3f} | **{ratio.value:.2f}** [{ratio.low:.2f}, {ratio.high:.2f}] "
        f"| {folds.min():.2f} to {folds.max():.2f} | {share:.1%} of {int(tallies.windows.sum()):,} "
        f"| {right:.3f} of {int(tallies.corrections.sum()):,} |"
    ).replace("%", " %")
    rows = []
    for added, pairs in (("flagged", COMPARED), ("all", COMPARED_ALL)):
        cells = []
        for arm, against in pairs:
            change = accuracy_change(tallies, arm, against)
            name_of = f"{stem}.{added}.over_{against.removesuffix('_all')}"
            Figure(
                name_of, change.value, "points of accuracy", "0", change.value,
                n=len(tallies.windows), low=change.low, high=change.high, data=data,
            ).show()  # fmt: skip
            cells.append(f"{change.value:.2f} [{change.low:.2f}, {change.high:.2f}]")
        least = min(accuracy_change(tallies, *pair, level=CLAIM).low for pair in pairs if pair[1] != "human")
        Figure(
            f"{stem}.{added}.claim", least, "points of accuracy",
            f"0, the lowest end of the intervals at {CLAIM:.2%}", least, n=len(tallies.windows), data=data,
        ).show()  # fmt: skip
        rows.append(
            f"| {name} | {added} | {' | '.join(cells)} |{'' if len(cells) == len(COMPARED) else ' |'}"
        )
    return first, rows


def main() -> None:
    """Print figures and tables."""
    windows = read_windows(data_folder("ecg_cinc2017"))
    recordings = len(np.unique(windows.record))
    splits = f"{FIRST_SEED} to {FIRST_SEED + SEEDS - 1}"
    data = f"ecg_cinc2017, {recordings} recordings in three rotations of splits {splits}"
    flags = [
        "| task | windows wrong | flagged windows wrong | ratio | per run | flagged | corrections right |",
        "|---|---|---|---|---|---|---|",
    ]
    changes = [
        "| task | added | against no retraining | against longer training | against self-training "
        "| against human labels instead |",
        "|---|---|---|---|---|---|",
    ]
    for key in TASKS:
        first, rows = show_task(key, run(windows, binary=key == "af"), data)
        flags.append(first)
        changes += rows
    show_table("flags", "\n".join(flags))
    show_table("changes", "\n".join(changes))
    folder = data_folder("ecg_mitdb")
    table = genuine_returns(pd.read_csv(folder / "rhythm_episodes.csv", keep_default_na=False))
    episodes = "ecg_mitdb, episodes annotated beat by beat"
    for rhythm, row in {"all": table.sum(), **{str(name): row for name, row in table.iterrows()}}.items():
        if row["fires"]:
            name = f"assertions.ecg.genuine.{rhythm.strip('(')}"
            Figure(
                name, float(row["fires"]), "episodes", f"{row['episodes']} of them",
                float(row["fires"] / row["episodes"]), n=int(row["episodes"]), data=episodes,
            ).show()  # fmt: skip
    total, fires = faultless_flags(pd.read_parquet(folder / "beats.parquet"))
    data = "ecg_mitdb, windows of ten seconds labelled without fault"
    Figure.of_share("assertions.ecg.faultless", fires, total, "of windows flagged", data=data).show()


if __name__ == "__main__":
    main()
