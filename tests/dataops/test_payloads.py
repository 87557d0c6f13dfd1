"""Where payloads may lie, what their images become, and what is kept of them."""

import hashlib
import io
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from outrider.assertions import Batch
from outrider.dataops.payloads.columns import PAYLOAD, Payload, PayloadForm, parse_form, payload_array
from outrider.dataops.payloads.images import DecodeGate, decode_image
from outrider.dataops.payloads.objects import LocalObjects
from outrider.dataops.payloads.payloads import Crew, Payloads, PayloadTask, rows_at_once
from outrider.dataops.payloads.roots import Folder, PayloadError, parse_roots, root_of
from outrider.dataops.payloads.store import PayloadCache, PayloadStore
from outrider.errors import ConfigError
from tests.soak import PATIENCE_S

BASE = Path("/srv/outrider")


def png(values: Any, mode: str | None = None, kind: str = "PNG") -> bytes:
    sink = io.BytesIO()
    image = Image.fromarray(np.asarray(values))
    (image.convert(mode) if mode else image).save(sink, kind)
    return sink.getvalue()


# ---- roots ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "uri", "inside"),
    [
        ("images", "file:///srv/outrider/images/a.png", True),
        ("images", "file:///srv/outrider/images/b/a%20b.png", True),
        ("images", "file://localhost/srv/outrider/images/a.png", True),
        ("/data", "file:///data/x/y", True),
        ("/data/", "file:///data/x", True),
        ("file:///data", "file:///data/x", True),
        ("images", "file:///srv/outrider/images", False),
        ("images", "file:///srv/outrider/images2/a.png", False),
        ("images", "file:///srv/outrider/images/../key", False),
        ("images", "file:///srv/outrider/images/%2e%2e/key", False),
        ("images", "file:///srv/outrider/images/./a.png", False),
        ("images", "file:///srv/outrider/images/a%00.png", False),
        ("images", "file://evil/srv/outrider/images/a.png", False),
        ("images", "file:///srv/outrider/images/a.png?x", False),
        ("images", "/srv/outrider/images/a.png", False),
        ("images", "http://127.0.0.1/srv/outrider/images/a.png", False),
        ("images", "s3://srv/outrider/images/a.png", False),
        ("images", "file://[::1/x", False),
        ("s3://bucket", "s3://bucket/a.png", True),
        ("s3://bucket/in", "s3://bucket/in/a b%20c.png", True),
        ("s3://bucket/in/", "s3://bucket/in/a.png", True),
        ("s3://bucket/in", "s3://bucket/in", False),
        ("s3://bucket/in", "s3://bucket/inner/a.png", False),
        ("s3://bucket/in", "s3://bucket/in/../out/a.png", False),
        ("s3://bucket/in", "s3://bucket2/in/a.png", False),
        ("s3://bucket", "s3://bucket/", False),
        ("s3://bucket", "s3://bucket/a//b", False),
        ("s3://bucket", "https://bucket.s3.amazonaws.com/a.png", False),
    ],
)
def test_a_reference_lies_inside_or_not_by_its_text(root: str, uri: str, inside: bool) -> None:
    roots = parse_roots([root], BASE, timeout_s=1.0)
    assert (root_of(roots, uri) is not None) is inside


@pytest.mark.parametrize(
    "text", ["http://host/x", "gs://bucket", "s3://", "/", "s3://b?secret=1", "file:///"]
)
def test_a_root_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="payload_roots"):
        parse_roots([text], BASE, timeout_s=1.0)


def test_links_may_stay_inside_a_folder_and_not_leave_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "deep").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    (inside / "deep" / "a").write_bytes(b"a")
    (inside / "link").symlink_to(inside / "deep" / "a")
    (inside / "way").symlink_to(outside)
    (inside / "file").symlink_to(outside / "secret")
    folder = Folder(inside)
    assert folder.read((inside / "link").as_uri(), 10) == b"a"
    for name in ("way/secret", "file"):
        with pytest.raises(PayloadError, match="leads out of"):
            folder.read((inside / name).as_uri(), 10)
    with pytest.raises(PayloadError, match="no regular file"):
        folder.read((inside / "deep").as_uri(), 10)
    # A root that is a link itself is what it leads to.
    (tmp_path / "alias").symlink_to(inside)
    assert Folder(tmp_path / "alias").read((tmp_path / "alias" / "deep" / "a").as_uri(), 10) == b"a"


class Bucket(BaseHTTPRequestHandler):
    """The part of S3 that a read needs."""

    objects: ClassVar[dict[str, bytes]] = {}
    delay_s = 0.0

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        time.sleep(self.delay_s)
        data = self.objects.get(self.path)
        if data is None:
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        start, stop, status = 0, len(data), 200
        if (asked := self.headers.get("range")) is not None and with_body:
            first, last = asked.removeprefix("bytes=").split("-")
            start, stop, status = int(first), min(len(data), int(last) + 1), 206
        self.send_response(status)
        self.send_header("content-length", str(stop - start))
        if status == 206:
            self.send_header("content-range", f"bytes {start}-{stop - 1}/{len(data)}")
        self.send_header("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT")
        self.end_headers()
        if with_body:
            self.wfile.write(data[start:stop])

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


def test_a_bucket_is_read_through_arrows_file_system(tmp_path: Path) -> None:
    data = png(np.full((4, 4), 255, np.uint8))
    Bucket.objects = {"/shop/in/a.png": data}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        at = f"127.0.0.1:{server.server_address[1]}"
        root = f"s3://shop/in?endpoint_override={at}&scheme=http&region=eu-west-1&anonymous=true"
        roots = parse_roots([root], BASE, timeout_s=3.0)
        store = PayloadStore(roots, cache=PayloadCache(tmp_path / "cache"), max_bytes=10_000)
        digest = hashlib.sha256(data).hexdigest()
        assert store.read("s3://shop/in/a.png", digest) == data
        with pytest.raises(PayloadError, match=r"does not exist|cannot be read"):
            store.read("s3://shop/in/gone.png", "0" * 64)
        with pytest.raises(PayloadError, match="in no folder or bucket"):
            store.read("s3://shop/out/a.png", "0" * 64)
    finally:
        server.shutdown()
        server.server_close()
    assert store.read("s3://shop/in/a.png", digest) == data  # at hand


# ---- what is kept --------------------------------------------------------------------------------------


def test_the_cache_forgets_the_longest_unused_and_serves_nothing_damaged(tmp_path: Path) -> None:
    cache = PayloadCache(tmp_path, limit_bytes=250)
    data = [bytes([n]) * 100 for n in range(3)]
    digests = [hashlib.sha256(one).hexdigest() for one in data]
    cache.put(digests[0], data[0])
    cache.put(digests[1], data[1])
    assert cache.get(digests[0]) == data[0]
    cache.put(digests[2], data[2])
    assert [cache.get(digest) for digest in digests] == [data[0], None, data[2]]
    (tmp_path / digests[0]).write_bytes(b"other")
    assert cache.get(digests[0]) is None
    # Another process finds what is there.
    assert PayloadCache(tmp_path, limit_bytes=250).get(digests[2]) == data[2]


def test_a_cache_that_cannot_write_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    PayloadCache(tmp_path / "cache").put("0" * 64, b"x")
    assert PayloadCache(tmp_path / "cache").get("0" * 64) is None


def test_what_is_kept_for_good_outlives_where_it_lay_and_a_damaged_object(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a"
    path.write_bytes(b"abc")
    digest = hashlib.sha256(b"abc").hexdigest()
    objects = LocalObjects(tmp_path / "objects")
    store = PayloadStore([Folder(tmp_path / "in")], objects=objects, max_bytes=10)
    store.keep(path.as_uri(), digest)
    path.unlink()
    assert store.read(path.as_uri(), digest) == b"abc"
    (tmp_path / "objects" / digest[:2] / digest).write_bytes(b"broken")
    with pytest.raises(PayloadError, match="does not exist"):
        store.read(path.as_uri(), digest)


# ---- images --------------------------------------------------------------------------------------------


def test_an_image_of_the_right_size_keeps_its_pixels() -> None:
    values = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    form = parse_form("image(4, 4, 3, 0..255)")
    assert form is not None
    assert np.array_equal(decode_image(png(values), form), values.astype(np.float32))
    unit = decode_image(png(values), PayloadForm("image", (4, 4, 3)))
    assert unit.dtype == np.float32
    assert np.allclose(unit * 255, values, atol=1e-4)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_every_known_format_is_read(kind: str) -> None:
    found = decode_image(
        png(np.full((9, 7), 200, np.uint8), "L" if kind != "WEBP" else "RGB", kind),
        PayloadForm("image", (3, 5)),
    )
    assert found.shape == (3, 5)
    assert np.allclose(found * 255, 200, atol=3)


def test_modes_are_made_one() -> None:
    colour = np.zeros((2, 2, 4), np.uint8)
    colour[..., 0], colour[..., 3] = 255, 128
    assert decode_image(png(colour), PayloadForm("image", (2, 2, 3)))[0, 0].tolist() == [1.0, 0.0, 0.0]
    assert decode_image(png(colour), PayloadForm("image", (2, 2, 4)))[0, 0, 3] == pytest.approx(128 / 255)
    assert decode_image(png(colour), PayloadForm("image", (2, 2, 1))).shape == (2, 2, 1)
    deep = (np.full((2, 2), 0x8000)).astype(np.uint16)
    assert np.allclose(decode_image(png(deep), PayloadForm("image", (2, 2), 255)), 0x80)
    palette = png(np.full((2, 2), 77, np.uint8), "P", "GIF")
    assert np.allclose(decode_image(palette, PayloadForm("image", (2, 2), 255)), 77, atol=1)


def test_the_same_bytes_give_the_same_numbers() -> None:
    data = png(np.random.default_rng(0).integers(0, 256, (37, 53, 3)).astype(np.uint8), kind="JPEG")
    form = PayloadForm("image", (16, 16, 3))
    assert np.array_equal(decode_image(data, form), decode_image(data, form))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"<svg/>",
        b"%!PS-Adobe-3.0 EPSF",
        b"\xff\xd8\xff\xe0" + b"\0" * 50,
    ],
)
def test_what_is_no_image_says_so(data: bytes) -> None:
    with pytest.raises(PayloadError, match=r"no image in|cannot be decoded"):
        decode_image(data, PayloadForm("image", (2, 2)))


def test_a_bomb_is_refused_by_its_header() -> None:
    data = png(np.zeros((3000, 3000), np.uint8))
    assert len(data) < 20_000
    with pytest.raises(PayloadError, match="3000 x 3000 pixels, at most 1000000"):
        decode_image(data, PayloadForm("image", (2, 2)), max_pixels=1_000_000)


@pytest.mark.parametrize(
    "text", ["image(0, 4)", "image(4)", "image(4, 4, 2)", "image(4, 9000)", "image(4,4,3,0..7)"]
)
def test_an_image_type_that_cannot_be_says_what_can(text: str) -> None:
    with pytest.raises(ValueError, match=r"image\(28, 28\)"):
        parse_form(text)


# ---- opening -------------------------------------------------------------------------------------------


def batch_of(*payloads: Payload | None, name: str = "inputs.image") -> Batch:
    return Batch.from_columns({name: payload_array(payloads)}, model="m", rows=len(payloads))


def test_payloads_open_in_place_and_faults_name_their_rows() -> None:
    good = png(np.full((2, 2), 255, np.uint8))
    batch = batch_of(Payload(good), None, Payload(b"?"), Payload(good))
    payloads = Payloads({"inputs.image": PayloadForm("image", (2, 2))}, PayloadStore(max_bytes=100))
    opened = payloads.open(batch)
    assert opened.batch.rows == 4
    assert opened.batch.is_null("inputs.image").tolist() == [False, True, True, False]
    assert list(opened.faults) == [2]
    assert opened.well.tolist() == [0, 1, 3]
    assert opened.batch.tensor("inputs.image", null=0).sum() == 8
    kept, rows = payloads.opened(batch, np.array([2, 3]))
    assert (kept.rows, rows.tolist()) == (1, [3])


def test_what_is_not_declared_stays_bytes_and_what_is_no_payload_as_it_is() -> None:
    batch = batch_of(Payload(b"\0\1"), None, name="inputs.sound").with_columns({"inputs.x": [1, 2]})
    opened = Payloads.none().open(batch).batch
    assert opened.arrow("inputs.sound").to_pylist() == [b"\0\1", None]
    plain = Batch.from_columns({"inputs.x": [1]}, model="m")
    assert Payloads.none().open(plain).batch is plain


def test_all_null_images_have_the_type_of_images() -> None:
    opened = Payloads({"inputs.image": PayloadForm("image", (2, 2))}, PayloadStore(max_bytes=1)).open(
        batch_of(None, None)
    )
    other = Payloads({"inputs.image": PayloadForm("image", (2, 2))}, PayloadStore(max_bytes=1)).open(
        batch_of(Payload(png(np.zeros((2, 2), np.uint8))))
    )
    assert opened.batch.arrow("inputs.image").type.equals(other.batch.arrow("inputs.image").type)
    assert Batch.concat([opened.batch, other.batch]).rows == 3


def test_what_hangs_is_given_up_and_others_go_on() -> None:
    crew = Crew(threads=2, deadline_s=0.2)
    held = threading.Event()
    hanging = [PayloadTask(held.wait) for _ in range(4)]
    quick = [PayloadTask(lambda: 7) for _ in range(20)]
    crew.start([*hanging, *quick])
    deadline = time.monotonic() + PATIENCE_S
    while not all(task.done.done() for task in [*hanging, *quick]):
        crew.give_up_late()
        time.sleep(0.01)
        assert time.monotonic() < deadline
    held.set()
    assert [task.done.result() for task in quick] == [7] * 20
    assert {str(task.done.exception()) for task in hanging} == {
        "not there after 0.2 s (intake.fetch_s of the model)"
    }


def test_rows_of_a_block_fit_together() -> None:
    forms = {"inputs.image": PayloadForm("image", (224, 224, 3)), "inputs.note": PayloadForm("text")}
    assert rows_at_once(forms, payload_bytes=16_000_000, may_fetch=False) == 111
    assert rows_at_once(forms, payload_bytes=16_000_000, may_fetch=True) == 4
    assert (
        rows_at_once({"inputs.image": PayloadForm("image", (8000, 8000, 4))}, payload_bytes=1, may_fetch=True)
        == 1
    )


def test_equal_payloads_are_equal_records_and_others_are_not() -> None:
    one, same, other = (
        batch_of(Payload(data)).content_digests()[0] for data in (b"a" * 5000, b"a" * 5000, b"b")
    )
    assert one == same
    assert one != other
    assert PAYLOAD.num_fields == 4
    assert pa.types.is_struct(PAYLOAD)


def test_images_are_unpacked_one_behind_the_other_where_together_they_are_too_much() -> None:
    gate = DecodeGate(8 * 1000)
    inside: list[int] = []
    most: list[int] = []

    def unpack(pixels: int) -> None:
        with gate.room(pixels):
            inside.append(pixels)
            most.append(sum(inside))
            time.sleep(0.001)
            inside.remove(pixels)

    sizes = [600, 300, 300, 5000, 400, 700] * 5
    threads = [threading.Thread(target=unpack, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == len(sizes)
    assert {size for size in most if size > 1000} <= {5000}, "of any size one goes alone"


def test_an_image_that_fails_gives_its_room_back() -> None:
    gate = DecodeGate(8)
    with pytest.raises(RuntimeError), gate.room(100):
        raise RuntimeError
    with gate.room(100):
        pass
