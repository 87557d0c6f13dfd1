"""Ten-second windows of ECG recordings as features: heartbeats, their intervals and shape, the spectrum."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import signal

Floats = NDArray[np.float64]
FS_HZ = 300
WINDOW_S, STRIDE_S = 10, 2
BANDS_HZ = ((0.5, 2), (2, 4), (4, 9), (9, 15), (15, 30), (30, 60), (60, 100))
BEFORE, AFTER = int(0.3 * FS_HZ), int(0.4 * FS_HZ)
P_WAVE = slice(int(0.08 * FS_HZ), int(0.22 * FS_HZ))
"""Where in a beat cut around its R peak the P wave lies: atrial fibrillation has none."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of all recordings, recording by recording in order of time.

    Attributes
    ----------
    features
        Shape (windows, 29).
    record, label
        Recording, and its rhythm (``N A O ~``), shape (windows,): what is true of every window of it.
    start_s
        Shape (windows,).
    """

    features: Floats
    record: NDArray[np.str_]
    label: NDArray[np.str_]
    start_s: Floats


def read_windows(folder: Path, *, every: int = 1) -> Windows:
    """Windows of every ``every``-th recording of ``ecg_cinc2017``."""
    made = [
        (row.record, row.label, start, values)
        for row in pd.read_parquet(folder / "records.parquet").iloc[::every].itertuples()
        for start, values in _of_recording(np.asarray(row.signal_uV, dtype=np.float64))
    ]
    return Windows(
        np.array([values for *_, values in made]),
        np.array([record for record, *_ in made]),
        np.array([label for _, label, *_ in made]),
        np.array([start for _, _, start, _ in made]),
    )


def _of_recording(microvolts: Floats) -> Iterator[tuple[float, list[float]]]:
    wave = signal.sosfiltfilt(_band(0.5, 100), microvolts)
    beats = heartbeats(wave)
    size = WINDOW_S * FS_HZ
    for start in range(0, len(wave) - size + 1, STRIDE_S * FS_HZ):
        here = beats[(beats >= start) & (beats < start + size)] - start
        part = wave[start : start + size]
        yield start / FS_HZ, [*_intervals(here), *_spectrum(part), *_beat_shape(part, here)]


@cache
def _band(low_hz: float, high_hz: float) -> Floats:
    return np.asarray(signal.butter(2, [low_hz, high_hz], "bandpass", fs=FS_HZ, output="sos"))


def heartbeats(wave: Floats) -> NDArray[np.intp]:
    """Sample numbers of R peaks.

    References
    ----------
    Pan and Tompkins, "A Real-Time QRS Detection Algorithm", IEEE Trans. Biomed. Eng., 1985; with one
    threshold per recording instead of adaptive ones.
    """
    narrow = signal.sosfiltfilt(_band(5, 20), wave)
    width = int(0.12 * FS_HZ)
    energy = np.convolve(np.gradient(narrow) ** 2, np.ones(width) / width, "same")
    pieces = np.array_split(energy, max(1, len(energy) // (2 * FS_HZ)))
    threshold = 0.3 * float(np.median([piece.max() for piece in pieces]))
    peaks, _ = signal.find_peaks(energy, height=threshold, distance=int(0.25 * FS_HZ))
    return np.asarray(peaks, dtype=np.intp)


def _intervals(beats: NDArray[np.intp]) -> list[float]:
    """Times between beats: how many, how long, how irregular; relative ones by the median."""
    few = len(beats) < 4
    gaps = np.full(3, 1.5) if few else np.diff(beats) / FS_HZ
    steps, middle = np.diff(gaps), float(np.median(gaps))
    rmssd = float(np.sqrt((steps**2).mean()))
    shares = np.histogram(gaps / middle, bins=np.arange(0.4, 1.7, 0.1))[0] / len(gaps)
    shares = shares[shares > 0]
    return [
        float(few),
        float(len(beats)),
        middle,
        float(gaps.std()),
        float(gaps.std() / gaps.mean()),
        rmssd,
        rmssd / middle,
        float((np.abs(steps) > 0.05).mean()),
        float(gaps.min() / middle),
        float(gaps.max() / middle),
        float(np.median(np.abs(gaps - middle)) / middle),
        float(np.median(np.abs(steps)) / middle),
        float(-(shares * np.log(shares)).sum()),
    ]


def _spectrum(wave: Floats) -> list[float]:
    frequency, power = signal.welch(wave, FS_HZ, nperseg=1024)
    total = power[(frequency > 0.5) & (frequency < 100)].sum() + 1e-9
    bands = [power[(frequency >= low) & (frequency < high)].sum() for low, high in BANDS_HZ]
    return [
        *(float(np.log((band + 1e-9) / total)) for band in bands),
        float(np.log(wave.std() + 1)),
        *_skew_and_kurtosis(wave),
    ]


def _skew_and_kurtosis(wave: Floats) -> tuple[float, float]:
    """As ``scipy.stats`` to the last bit, whose checks of its arguments take longer than all else here."""
    centred = wave - wave.mean()
    squares = centred**2
    variance = squares.mean()
    return float((squares * centred).mean() / variance**1.5), float((squares**2).mean() / variance**2.0 - 3)


def _beat_shape(wave: Floats, beats: NDArray[np.intp]) -> list[float]:
    """How alike the beats are, and how much of a P wave they have."""
    whole = [beat for beat in beats if beat >= BEFORE and beat + AFTER < len(wave)]
    if len(whole) < 3:
        return [0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    cut = np.array([wave[beat - BEFORE : beat + AFTER] for beat in whole])
    cut -= cut.mean(axis=1, keepdims=True)  # (beats, samples)
    typical = np.median(cut, axis=0)
    alike = cut @ typical / (np.linalg.norm(cut, axis=1) * np.linalg.norm(typical) + 1e-9)
    height = float(np.abs(typical).max()) + 1e-9
    return [
        float(np.median(alike)),
        float(alike.min()),
        float(alike.std()),
        float(np.ptp(typical[P_WAVE])) / height,
        float(np.median(np.ptp(cut[:, P_WAVE], axis=1))) / height,
        float(np.std(cut[:, P_WAVE] - typical[P_WAVE])) / height,
    ]
