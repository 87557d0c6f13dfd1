"""Changes of images against other implementations of the same thing."""

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from outrider.assertions import Batch
from outrider.behavioral_tests import perturb
from outrider.behavioral_tests.perturb import Perturbation
from outrider.behavioral_tests.perturb.image.jpeg import _dct

RNG = np.random.default_rng(0)


def changed(perturbation: Perturbation, pixels: NDArray[Any], seed: int = 0) -> NDArray[Any]:
    batch = Batch.from_columns({"inputs.image": pixels}, model="m")
    found: NDArray[Any] = perturbation(batch, np.random.default_rng(seed)).tensor("inputs.image")
    assert found.shape == pixels.shape
    assert found.dtype == pixels.dtype
    return found


def photos(rows: int, channels: int, height: int, width: int) -> NDArray[np.uint8]:
    """Smooth pictures with some texture, as a camera makes them."""
    rng = np.random.default_rng(5)
    rough = rng.standard_normal((rows, channels, height, width))
    smooth = ndimage.gaussian_filter(rough, (0, 0, 4, 4)) * 900
    found: NDArray[np.uint8] = np.clip(128 + smooth + 4 * rough, 0, 255).astype(np.uint8)
    return found


def pillow(picture: NDArray[np.uint8], quality: int) -> NDArray[np.int64]:
    image = Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    decoded = np.asarray(Image.open(file)).astype(np.int64)
    return decoded[None] if decoded.ndim == 2 else decoded.transpose(2, 0, 1)


@pytest.mark.parametrize("quality", [1, 10, 50, 75, 95, 100])
@pytest.mark.parametrize("channels", [1, 3])
def test_jpeg_loses_what_pillows_jpeg_loses(quality: int, channels: int) -> None:
    original = photos(6, channels, 61, 90)
    ours = changed(perturb.image.jpeg(quality=quality, value_range=(0, 255)), original)
    theirs = np.stack([pillow(picture, quality) for picture in original])
    apart = np.abs(ours - theirs).mean()
    lost = np.abs(original.astype(np.int64) - theirs).mean()
    # libjpeg works in integers: a coefficient just between two steps may go the other way.
    assert apart < (0.5 if channels == 1 else 1.2)
    assert apart < 0.2 * lost or quality > 90


def test_the_transform_of_jpeg_is_orthonormal() -> None:
    np.testing.assert_allclose(_dct(8) @ _dct(8).T, np.eye(8), atol=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_blur_is_scipys(sigma: float) -> None:
    pixels = RNG.random((3, 2, 20, 31))
    wanted = ndimage.gaussian_filter(pixels, (0, 0, sigma, sigma), mode="nearest")
    np.testing.assert_allclose(changed(perturb.image.blur(sigma=sigma), pixels), wanted, atol=1e-12)


def test_rotation_is_scipys_inside_the_picture() -> None:
    pixels = RNG.random((4, 30, 41)).astype(np.float64)
    found = changed(perturb.image.rotate(degrees=12), pixels, seed=3)
    rng = np.random.default_rng(3)
    angles = 12 * rng.uniform(0.5, 1.0, 4) * rng.choice([-1.0, 1.0], 4)
    for picture, angle, turned in zip(pixels, angles, found, strict=True):
        wanted = ndimage.rotate(picture, angle, reshape=False, order=1)
        np.testing.assert_allclose(turned[8:-8, 10:-10], wanted[8:-8, 10:-10], atol=1e-9)


def test_light_noise_and_contrast_are_what_numpy_gives() -> None:
    pixels = RNG.random((5, 8, 8), dtype=np.float32) * 2 - 0.5
    camera = (-0.5, 1.5)
    grain = np.random.default_rng(7).standard_normal(pixels.shape, dtype=np.float32) * np.float32(0.06)
    noisy = changed(perturb.image.noise(sigma=0.03, value_range=camera), pixels, seed=7)
    np.testing.assert_allclose(noisy, np.clip(pixels + grain, *camera), atol=2e-7)
    bright = changed(perturb.image.brightness(by=0.05, value_range=camera), pixels)
    np.testing.assert_allclose(bright, np.clip(pixels + 0.1, *camera), atol=2e-7)
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    flat = changed(perturb.image.contrast(factor=0.8, value_range=camera), pixels)
    np.testing.assert_allclose(flat, np.clip(mean + 0.8 * (pixels - mean), *camera), atol=1e-6)


def test_a_shift_moves_every_pixel_alike() -> None:
    image = np.zeros((200, 9, 9), dtype=np.float32)
    image[:, 4, 4] = 1.0
    moved = changed(perturb.image.shift(pixels=2), image).reshape(200, 81)
    rows, columns = np.nonzero(moved)[1] // 9, np.nonzero(moved)[1] % 9
    assert len(rows) == 200
    assert (np.maximum(abs(rows - 4), abs(columns - 4)) >= 1).all()
    assert set(rows) == set(columns) == {2, 3, 4, 5, 6}


def test_an_occlusion_covers_one_rectangle_and_a_dead_line_one_line() -> None:
    ones = np.ones((20, 3, 8, 8), dtype=np.float32)
    covered = changed(perturb.image.occlude(share=0.25), ones)
    assert (covered == 0).sum(axis=(1, 2, 3)).tolist() == [3 * 4] * 20
    dead = changed(perturb.image.stuck(axis="column", lines=2), ones)
    assert (dead == 0).all(axis=(1, 2)).sum(axis=1).tolist() == [2] * 20
    assert (dead == 0).sum(axis=(1, 2, 3)).tolist() == [3 * 8 * 2] * 20


def test_mirrors_channels_grey_zoom_and_gamma() -> None:
    colour = RNG.random((2, 3, 6, 7), dtype=np.float32)
    np.testing.assert_array_equal(changed(perturb.image.flip(), colour), colour[..., ::-1])
    np.testing.assert_array_equal(changed(perturb.image.flip(axis="vertical"), colour), colour[:, :, ::-1])
    np.testing.assert_array_equal(changed(perturb.image.channels(), colour), colour[:, ::-1])
    luma = np.tensordot(np.array([0.299, 0.587, 0.114], dtype=np.float32), colour, axes=(0, 1))
    np.testing.assert_allclose(changed(perturb.image.grey(), colour), np.stack([luma] * 3, axis=1), atol=1e-6)
    np.testing.assert_allclose(changed(perturb.image.gamma(exponent=2), colour), np.square(colour), atol=1e-6)
    square = np.zeros((1, 8, 8), dtype=np.float32)
    square[:, 2:6, 2:6] = 1.0
    assert changed(perturb.image.zoom(factor=2), square).sum() > 50
    assert changed(perturb.image.zoom(factor=0.5), square).sum() == pytest.approx(4, abs=0.01)


def test_salt_and_pepper_hits_about_its_share() -> None:
    grey = np.full((10, 40, 40), 0.5, dtype=np.float32)
    found = changed(perturb.image.salt_and_pepper(share=0.1), grey)
    assert np.isin(found, [0.0, 0.5, 1.0]).all()
    assert 0.08 < (found != 0.5).mean() < 0.12


def test_flat_vectors_are_refused_with_the_field() -> None:
    with pytest.raises(ValueError, match=r"inputs\.image: .* got float32 of shape \(64,\); reshape"):
        changed(perturb.image.noise(), np.zeros((2, 64), dtype=np.float32))


def test_torch_is_loaded_when_a_perturbation_is_made_and_needed_for_images_alone() -> None:
    code = """
import sys
from outrider.behavioral_tests import perturb
perturb.text.typos(), perturb.tabular.jitter("age"), perturb.series.warp(), perturb.chat.inject()
assert "torch" not in sys.modules
perturb.image.noise()
assert "torch" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    [
        *("blur", "brightness", "channels", "contrast", "flip", "gamma", "grey", "jpeg", "noise", "occlude"),
        *("rotate", "salt_and_pepper", "shift", "stuck", "zoom"),
    ],
)
def test_a_gpu_gives_the_same_pictures(name: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    make = getattr(perturb.image, name)
    pixels = photos(8, 3, 40, 56).astype(np.float32) / 255
    here, there = (changed(make(device=device), pixels, seed=1) for device in ("cpu", "cuda"))
    apart = np.abs(np.asarray(here, dtype=np.float64) - np.asarray(there, dtype=np.float64))
    if name == "jpeg":  # a coefficient just between two steps may go the other way
        assert apart.mean() < 1e-3
    else:
        assert apart.max() < 1e-5
