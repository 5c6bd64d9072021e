"""Images: what the files hold is what arrives, whatever is wrong is one sentence, and digits stand in openly."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import decentral_dp
from decentral_dp.data import Dataset, load, make_shards, scale
from decentral_dp.errors import InputError
from decentral_dp.simulation.jobs.build import build, run_digest
from decentral_dp.simulation.plan import problem_summary
from decentral_dp.simulation.statements.of_job import statement_of

NAMES = {
    "images": "train-images-idx3-ubyte",
    "labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
BATCHES = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]


@pytest.fixture(autouse=True)
def nothing_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DECENTRAL_DP_DATA", raising=False)
    monkeypatch.setenv("DECENTRAL_DP_CACHE", str(tmp_path / "cache"))


def pixels(n: int, d: int = 784, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, n, d]).integers(0, 256, (n, d), dtype=np.uint8)


def labels(n: int) -> np.ndarray:
    return (np.arange(n) * 7 % 10).astype(np.uint8)


def idx(values: np.ndarray, *size: int) -> bytes:
    """An IDX file of bytes: 0, 0, 8, the number of dimensions, the dimensions, the values."""
    shape = (values.shape[0], *size)
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values.tobytes()


def mnist(folder: Path, n: int = 30, n_test: int = 10, end: str = "") -> Path:
    """A folder with the four files, small."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"images": idx(pixels(n), 28, 28), "labels": idx(labels(n))}
    if n_test:
        content |= {"test_images": idx(pixels(n_test, seed=1), 28, 28), "test_labels": idx(labels(n_test))}
    for key, plain in content.items():
        (folder / f"{NAMES[key]}{end}").write_bytes(gzip.compress(plain) if end else plain)
    return folder


def batches(n: int = 4) -> dict[str, bytes]:
    """The six files of CIFAR-10, with n records each."""
    return {name: np.hstack([labels(n)[:, None], pixels(n, 3072, seed=k)]).tobytes() for k, name in enumerate(BATCHES)}


def tarred(files: dict[str, bytes], prefix: str = "cifar-10-batches-bin/") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read(name: str, files: dict[str, Any] | None, **options: Any) -> Dataset:
    return load(name, files=files, **({"n_agents": 2, "seed": 0} | options))


def each(folder: Path, end: str = "") -> dict[str, Any]:
    return {key: str(folder / f"{name}{end}") for key, name in NAMES.items()}


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("form", ["folder", "each", "url"])
def test_idx_files_arrive_as_written(tmp_path: Path, name: str, end: str, form: str) -> None:
    folder = mnist(tmp_path / "here", end=end)
    files = {"folder": "here"} if form == "folder" else each(folder, end)
    if form == "url":
        files = {key: Path(path).as_uri() for key, path in files.items()}
        files["sha256"] = {key: sha256(folder / f"{NAMES[key]}{end}") for key in NAMES}
    data = read(name, files, root=tmp_path)
    assert np.array_equal(data.features * 255, np.concatenate([pixels(30), pixels(10, seed=1)]))
    assert np.array_equal(data.labels, np.concatenate([labels(30), labels(10)]))
    assert (data.features.min(), data.features.max(), data.bounds) == (0.0, 1.0, (0.0, 1.0))
    assert (data.image, data.own_test, data.classes, data.notes) == ((28, 28, 1), 10, tuple(range(10)), ())
    assert data.features.dtype == np.float64
    # Row 3, column 5 of the picture.
    assert data.feature_names[3 * 28 + 5] == "pixel_3_5"


@pytest.mark.parametrize("form", ["folder", "inner folder", "archive", "archive in folder", "top of archive"])
def test_cifar_arrives_as_written_channel_by_channel(tmp_path: Path, form: str) -> None:
    content = batches()
    if "archive" in form:
        prefix = "" if form == "top of archive" else "cifar-10-batches-bin/"
        (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tarred({"readme.html": b"hello"} | content, prefix))
    else:
        inner = tmp_path / "cifar-10-batches-bin" if form == "inner folder" else tmp_path
        inner.mkdir(exist_ok=True)
        for name, plain in content.items():
            (inner / name).write_bytes(plain)
    by_folder = form in ("folder", "inner folder", "archive in folder")
    data = read("cifar10", {"folder": "."} if by_folder else {"archive": "cifar-10-binary.tar.gz"}, root=tmp_path)
    assert np.array_equal(data.features * 255, np.concatenate([pixels(4, 3072, seed=k) for k in range(6)]))
    assert np.array_equal(data.labels, np.tile(labels(4), 6))
    assert (data.image, data.own_test) == ((32, 32, 3), 4)
    green = data.features[7].reshape(3, 32, 32)[1]
    assert data.feature_names[1024 + 2 * 32 + 9] == "green_2_9"
    # The published format: after the label 1024 red, then 1024 green bytes, row by row.
    assert green[2, 9] * 255 == content["data_batch_2.bin"][3 * 3073 + 1 + 1024 + 2 * 32 + 9]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 12), st.integers(0, 12), st.integers(1, 15))
def test_the_limit_takes_the_first_records_of_each(tmp_path: Path, n: int, n_test: int, limit: int) -> None:
    folder = mnist(tmp_path / f"{n}-{n_test}", n, n_test)
    whole, some = (read("mnist", {"folder": str(folder)}, limit=most) for most in (None, limit))
    kept = [*range(min(n, limit)), *range(n, n + min(n_test, limit))]
    assert np.array_equal(some.features, whole.features[kept])
    assert np.array_equal(some.labels, whole.labels[kept])
    assert some.own_test == min(n_test, limit)
    # The general rule for any data says the same.
    assert np.array_equal(whole.head(limit).features, some.features)
    assert whole.head(limit).own_test == some.own_test


def test_the_limit_holds_for_other_data_too(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("a,y,agent,split\n1,0,0,train\n2,1,1,test\n3,0,0,train\n")
    data = load("d.csv", n_agents=2, seed=0, label="y", classes=[0, 1], root=tmp_path, limit=2)
    assert data.features[:, 0].tolist() == [1, 2]
    assert data.agent is not None
    assert data.split is not None
    assert (data.agent.tolist(), data.split.tolist()) == ([0, 1], ["train", "test"])
    assert load("wine", n_agents=1, seed=0, limit=7).n == 7
    assert load("wine", n_agents=1, seed=0, limit=7000).n == 178
    with pytest.raises(InputError, match=r"problem\.limit: 'synthetic_normal' takes none"):
        load("synthetic_normal", n_agents=2, seed=0, limit=5)


def change(folder: Path, key: str, edit: Callable[[bytes], bytes]) -> None:
    path = folder / NAMES[key]
    path.write_bytes(edit(path.read_bytes()))


@pytest.mark.parametrize(
    ("key", "edit", "message"),
    [
        (
            "images",
            lambda b: b[:-1],
            r"says it has 30 images, which take 23536 bytes, but has 23535 bytes; it is empty, t",
        ),
        ("images", lambda b: b + b"x", r"but has 23537 bytes"),
        ("images", lambda b: b[:9], r"has 9 bytes, too few for the head"),
        ("images", lambda b: b"", r"has 0 bytes, too few for the head"),
        (
            "images",
            lambda b: b"\0\0\r\3" + b[4:],
            r"starts with the number 3331, but an IDX file of images starts with",
        ),
        ("images", lambda b: idx(labels(30)) + bytes(9), r"starts with the number 2049, which is that of labels, but"),
        ("labels", lambda b: idx(pixels(2), 28, 28), r"starts with the number 2051, which is that of images, but"),
        (
            "images",
            lambda b: idx(pixels(30), 56, 14),
            r"has images of 56×14 pixels, but 28×28 are wanted; resize them, or give .* data = .FILE.npz",
        ),
        ("images", lambda b: idx(pixels(0), 28, 28), r"says it has 0 images"),
        ("images", lambda b: b[:4] + b"\xff" * 4 + b[8:], r"says it has 4294967295 images, which take 3367254359296 b"),
        ("images", lambda b: gzip.compress(b)[:-1], r"truncated or damaged gzip file"),
        ("images", lambda b: gzip.compress(b)[:40] + b"?" * 40, r"truncated or damaged gzip file"),
        ("labels", lambda b: b[:-1], r"says it has 30 labels, which take 38 bytes, but has 37"),
        ("labels", lambda b: idx(labels(29)), r"has 29 labels, but '.*train-images-idx3-ubyte' has 30 images"),
        ("test_labels", lambda b: b[:-1] + b"\x0a", r"record 10 has a label that is none of 0 to 9"),
        ("labels", lambda b: b[:20] + b"\xff" + b[21:], r"record 13 has a label that is none of 0 to 9"),
    ],
)
def test_damaged_idx_files_are_one_sentence(
    tmp_path: Path, key: str, edit: Callable[[bytes], bytes], message: str
) -> None:
    folder = mnist(tmp_path / "here")
    change(folder, key, edit)
    for files in ({"folder": str(folder)}, each(folder)):
        where = r"problem\.files\.folder" if "folder" in files else rf"problem\.files\.{key}"
        with pytest.raises(InputError, match=rf"^{where}: '.*{NAMES[key]}'.*{message}") as caught:
            read("mnist", files)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 37), st.integers(0, 255))
def test_a_changed_byte_of_the_labels_is_a_label_or_a_sentence(tmp_path: Path, place: int, byte: int) -> None:
    folder = mnist(tmp_path / "here")
    change(folder, "labels", lambda b: b[:place] + bytes([byte]) + b[place + 1 :])
    original = idx(labels(30))[place]
    if byte == original or (place >= 8 and byte <= 9):
        found = read("mnist", {"folder": str(folder)}).labels[:30]
        wanted = labels(30).astype(np.int64)
        if place >= 8:
            wanted[place - 8] = byte
        assert np.array_equal(found, wanted)
    else:
        with pytest.raises(InputError):
            read("mnist", {"folder": str(folder)})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda b: b[:-1], r"has 12291 bytes, but a multiple of 3073"),
        (lambda b: b"", r"has 0 bytes, but a multiple of 3073"),
        (lambda b: b"\x0a" + b[1:], r"record 1 has a label that is none of 0 to 9"),
        (None, r"but not data_batch_3\.bin; add it|has no member 'data_batch_3\.bin'"),
    ],
)
def test_damaged_cifar_is_one_sentence(tmp_path: Path, edit: Callable[[bytes], bytes] | None, message: str) -> None:
    content = batches()
    damaged = content.pop("data_batch_3.bin")
    if edit is not None:
        content["data_batch_3.bin"] = edit(damaged)
    (tmp_path / "c.tar.gz").write_bytes(tarred(content))
    folder = tmp_path / "here"
    folder.mkdir()
    for name, plain in content.items():
        (folder / name).write_bytes(plain)
    for files in ({"folder": str(folder)}, {"archive": str(tmp_path / "c.tar.gz")}):
        with pytest.raises(InputError, match=rf"^problem\.files\..*{message}") as caught:
            read("cifar10", files)
        assert "\n" not in str(caught.value)


def test_the_python_version_of_cifar_is_told_from_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its names alone: its files are pickles, and these would not unpickle."""
    message = r"data.*' is CIFAR-10's python version, and the binary version is needed; get cifar-10-binary\.tar\.gz"
    pickles = {f"data_batch_{k}": b"no pickle" for k in range(1, 6)} | {"test_batch": b"", "batches.meta": b""}
    archive = tmp_path / "data.tar.gz"
    archive.write_bytes(tarred(pickles, "cifar-10-batches-py/"))
    with pytest.raises(InputError, match=message):
        read("cifar10", {"archive": str(archive)})
    for place, name in (
        ("a", "data_batch_1"),
        ("b", "cifar-10-batches-py/data_batch_1"),
        ("c", "cifar-10-python.tar.gz"),
    ):
        file = tmp_path / place / "cifar10" / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")
        with pytest.raises(InputError, match=r"is CIFAR-10's python version"):
            read("cifar10", {"folder": str(tmp_path / place / "cifar10")})
        # Digits must not stand in where the wrong files are there.
        monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path / place))
        with pytest.raises(InputError, match=r"^DECENTRAL_DP_DATA/cifar10: .*python version"):
            read("cifar10", None)


def test_an_archive_that_leads_outside_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.tar.gz"
    path.write_bytes(tarred(batches(), "../"))
    with pytest.raises(InputError, match=r"whose path leads outside of the archive"):
        read("cifar10", {"archive": str(path)})
    assert [p.name for p in tmp_path.iterdir()] == ["c.tar.gz"]


def test_a_checksum_is_verified_before_anything_is_parsed(tmp_path: Path) -> None:
    folder = mnist(tmp_path / "here")
    good = {NAMES[key]: sha256(folder / NAMES[key]) for key in NAMES}
    assert read("mnist", {"folder": str(folder), "sha256": good}).n == 40
    # The first file does not even parse, but the checksum of the last is what is told.
    change(folder, "images", lambda b: b"not an IDX file")
    change(folder, "test_labels", lambda b: b[:-1])
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte' \(17 bytes\) has the SHA-256 .* is declared"):
        read("mnist", {"folder": str(folder), "sha256": {NAMES["test_labels"]: good[NAMES["test_labels"]]}})


def test_all_urls_need_their_checksum_before_the_first_is_fetched(tmp_path: Path) -> None:
    # Nothing listens there: fetching the first would say so.
    files = {key: f"http://127.0.0.1:1/{name}" for key, name in NAMES.items()}
    sums = dict.fromkeys(("images", "labels", "test_images"), "0" * 64)
    with pytest.raises(InputError, match=r"problem\.files\.test_labels: .* without a checksum.*\{ test_labels = \"<64"):
        read("mnist", files | {"sha256": sums})
    with pytest.raises(InputError, match=r"problem\.files\.archive: .*problem\.files\.sha256 = \{ archive = "):
        read("cifar10", {"archive": "https://127.0.0.1/cifar-10-binary.tar.gz"})


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        ("mnist", {}, r"problem\.files: got no file, but either folder, or images and labels is wanted"),
        ("mnist", {"sha256": {"images": "0" * 64}}, r"problem\.files: got no file"),
        ("mnist", {"folder": "here", "images": "x"}, r"problem\.files: got folder, images, but either folder, or"),
        ("mnist", {"images": "x"}, r"problem\.files\.labels: missing, since images is given"),
        ("mnist", {"labels": "x"}, r"problem\.files\.images: missing"),
        ("mnist", {"images": "x", "labels": "x", "test_labels": "x"}, r"problem\.files\.test_images: missing"),
        ("mnist", {"test_images": "x", "test_labels": "x"}, r"problem\.files\.images: missing"),
        ("mnist", {"archive": "x"}, r"problem\.files\.archive: mnist takes none, only folder, images"),
        ("cifar10", {"images": "x", "labels": "x"}, r"problem\.files\.images: cifar10 takes none, only folder, arch"),
        ("mnist", {"folder": "absent"}, r"problem\.files\.folder: '.*absent' is no folder"),
        ("mnist", {"folder": "empty"}, r"'.*empty' has none of MNIST's files, such as train-images-idx3-ubyte"),
        ("cifar10", {"folder": "empty"}, r"has none of CIFAR-10's files, such as cifar-10-binary\.tar\.gz"),
        ("mnist", {"folder": "https://127.0.0.1/x"}, r"is a URL, but a local folder is wanted; give .* by URL instead"),
        (
            "mnist",
            {"images": "absent", "labels": "absent"},
            r"problem\.files\.images: '.*absent' cannot be read: No su",
        ),
        ("mnist", {"folder": "here", "sha256": {"images": "0" * 64}}, r"no file here is called 'images'"),
        (
            "mnist",
            {"folder": "here", "sha256": {NAMES["images"] + ".gz": "0" * 64}},
            r"the nearest is 'train-images-id",
        ),
        ("mnist", {"folder": "here", "sha256": {NAMES["images"]: "0"}}, r"the 64 hexadecimal digits"),
        ("digits", {"folder": "here"}, r"problem\.files: 'digits' takes none, only mnist, .*, celeba, femnist do"),
        ("synthetic_normal", {"folder": "here"}, r"problem\.files: 'synthetic_normal' takes none"),
    ],
)
def test_declarations_that_cannot_be_meant(tmp_path: Path, name: str, files: dict[str, Any], message: str) -> None:
    mnist(tmp_path / "here")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message) as caught:
        read(name, files, root=tmp_path)
    assert "\n" not in str(caught.value)


def test_half_a_set_of_files_is_an_error_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = mnist(tmp_path / "mnist")
    (folder / NAMES["test_labels"]).unlink()
    message = r"has t10k-images-idx3-ubyte, train-images-idx3-ubyte, train-labels-idx1-ubyte, but not t10k-labels-idx1"
    with pytest.raises(InputError, match=message):
        read("mnist", {"folder": str(folder)})
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    with pytest.raises(InputError, match=rf"DECENTRAL_DP_DATA/mnist: .*{message}"):
        read("mnist", None)


def test_paths_of_image_files_are_no_data(tmp_path: Path) -> None:
    for path in ("train-images-idx3-ubyte", "cifar-10-binary.tar.gz", "data_batch_1.bin"):
        with pytest.raises(InputError, match=r'named in problem\.files, beside data = "mnist"'):
            read(path, None, root=tmp_path)


@pytest.mark.parametrize(
    ("name", "title"), [("mnist", "MNIST"), ("fashion_mnist", "Fashion-MNIST"), ("cifar10", "CIFAR")]
)
def test_digits_stand_in_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, title: str) -> None:
    # A folder for data that has not this collection is no error either.
    for place in (None, str(tmp_path)):
        if place is not None:
            monkeypatch.setenv("DECENTRAL_DP_DATA", place)
        data = read(name, None)
        digits = load("digits", n_agents=2, seed=0)
        assert np.array_equal(data.features * 16, digits.features)
        assert np.array_equal(data.labels, digits.labels)
        assert (data.image, data.own_test, data.bounds) == ((8, 8, 1), 0, (0.0, 1.0))
        assert len(data.notes) == 1
        assert data.notes[0].startswith(title)
        assert "files are not here: scikit-learn's digits (1797 records, 8×8) stand in" in data.notes[0]
    assert digits.notes == ()
    assert read(name, None, limit=50).n == 50
    assert "(50 records" in read(name, None, limit=50).notes[0]


def test_the_environment_names_a_folder_of_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist(tmp_path / "fashion_mnist", n=12)
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path))
    assert read("fashion_mnist", None).n == 22
    assert read("mnist", None).notes
    # What the scenario declares comes first.
    assert read("fashion_mnist", {"folder": str(mnist(tmp_path / "other"))}).n == 40
    monkeypatch.setenv("DECENTRAL_DP_DATA", str(tmp_path / "absent"))
    with pytest.raises(InputError, match=r"DECENTRAL_DP_DATA: '.*absent' is no folder"):
        read("mnist", None)


def test_the_files_own_test_set_is_held_out(tmp_path: Path) -> None:
    data = read("mnist", {"folder": str(mnist(tmp_path / "here"))})
    shards = make_shards(data, 3, seed=1, validation=0.4)
    assert shards.test.tolist() == list(range(30, 40))
    dealt = np.sort(np.concatenate([*shards.train, *shards.validation]))
    assert dealt.tolist() == list(range(30))
    assert (shards.image, shards.l1, shards.l2) == ((28, 28, 1), 784.0, 28.0)
    for test in (0.2, 0.0):
        with pytest.raises(InputError, match=r"problem\.test: 'mnist' has a test set of its own; leave `test` out"):
            make_shards(data, 3, seed=1, test=test)
    without = read("mnist", {"folder": str(mnist(tmp_path / "trainonly", n_test=0))})
    assert make_shards(without, 3, seed=1, test=0.5).test.size == 15


def test_public_ranges_map_pixels_to_the_unit_cube(tmp_path: Path) -> None:
    """Elementwise by declared constants: 2·(byte/255) − 1, and no record moves another."""
    folder = mnist(tmp_path / "here")
    data = read("mnist", {"folder": str(folder)})
    scaled = scale(data, "public_ranges")
    raw = np.concatenate([pixels(30), pixels(10, seed=1)]).astype(float)
    assert np.abs(scaled.features - (2 * raw / 255 - 1)).max() < 1e-15
    assert scaled.bounds == (-1.0, 1.0)
    assert scale(data, "standard", certified=False).bounds is None
    # Digits that stand in fill the same cube.
    standing = scale(read("mnist", None), "public_ranges")
    assert np.array_equal(standing.features, scale(load("digits", n_agents=1, seed=0), "public_ranges").features)
    change(folder, "images", lambda b: b[:16] + bytes(784) + b[800:])
    changed = scale(read("mnist", {"folder": str(folder)}), "public_ranges")
    assert np.array_equal(changed.features[1:], scaled.features[1:])
    assert (changed.features[0] == -1).all()


def test_pictures_and_test_sets_by_hand_are_checked() -> None:
    digits = load("digits", n_agents=1, seed=0)
    with pytest.raises(InputError, match=r"has 64 features, but pictures of \(8, 8, 3\)"):
        replace(digits, image=(8, 8, 3))
    for own_test in (-1, 1797):
        with pytest.raises(InputError, match=r"for testing leave nothing"):
            replace(digits, own_test=own_test)


def scenario(problem: dict[str, Any], **privacy: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "problem": {"kind": "softmax_hyperparameter", "scale": "public_ranges", "normalise": "l2"} | problem,
        "topology": {"kind": "ring", "agents": 3},
        "algorithm": {
            "kind": "ldp_dsbo",
            "rounds": 3,
            "x": {"scale": 0.1},
            "y": {"scale": 0.1},
            "z": {"scale": 0.1},
        },
        "privacy": {"mechanism": "gaussian", "epsilon": 8.0, "clip": {"y": 1.0, "z": 1.0}} | privacy,
    }


@pytest.mark.usefixtures("undrawn")
def test_a_certified_run_on_idx_files(tmp_path: Path) -> None:
    mnist(tmp_path / "here", 60, 20)
    place = {"folder": str(tmp_path / "here")}
    done = decentral_dp.run(scenario({"data": "mnist", "files": place, "limit": 40}), out=tmp_path / "run")
    problem = done.result["problem"]
    assert (problem["p"], problem["q"]) == (784, 7840)
    assert sum(problem["records"]["train"]) + sum(problem["records"]["validation"]) == 40
    assert (problem["records"]["test"], problem["data"], problem["notes"]) == (20, "mnist", [])
    # The resolved scenario runs again, from wherever it is.
    again = decentral_dp.run(tmp_path / "run" / "scenario.toml")
    assert np.array_equal(again.released["y"], done.released["y"])


@pytest.mark.usefixtures("undrawn")
def test_the_stand_in_is_told_in_result_notes_and_report(tmp_path: Path) -> None:
    done = decentral_dp.run(scenario({"data": "cifar10", "limit": 90}), out=tmp_path / "run")
    sentence = "CIFAR-10's files are not here: scikit-learn's digits (90 records, 8×8) stand in."
    assert any(note.startswith(sentence) for note in done.result["privacy"]["notes"])
    assert done.result["problem"]["notes"][0].startswith(sentence)
    assert done.result["problem"]["data"] == "digits standing in for cifar10"
    assert done.result.title == f"{done.scenario.title} (digits standing in for cifar10)".strip()
    # Dimensions follow the data that are there.
    assert (done.result["problem"]["p"], done.result["problem"]["q"]) == (64, 640)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "digits standing in for cifar10" in page
    assert "files are not here: scikit-learn" in page


def test_other_data_have_no_such_note() -> None:
    job = build(decentral_dp.load(scenario({"data": "digits", "limit": 90})))
    assert problem_summary(job)["notes"] == []
    assert problem_summary(job)["data"] == "digits"
    assert not any("stand in" in note for note in statement_of(job).notes)
    assert job.shards.image == (8, 8, 1)


def test_noise_hangs_on_what_the_files_hold_and_not_on_where_they_are(tmp_path: Path) -> None:
    """The same records elsewhere are the same job; the same records divided otherwise are another."""
    here, there = mnist(tmp_path / "here"), mnist(tmp_path / "there", end=".gz")
    moved = mnist(tmp_path / "moved", 20, 20)
    everything = np.concatenate([pixels(30), pixels(10, seed=1)])
    names = np.concatenate([labels(30), labels(10)])
    for key, rows in (("", slice(20)), ("test_", slice(20, 40))):
        (moved / NAMES[f"{key}images"]).write_bytes(idx(everything[rows], 28, 28))
        (moved / NAMES[f"{key}labels"]).write_bytes(idx(names[rows]))
    roots = [
        run_digest(build(decentral_dp.load(scenario({"data": "mnist", "files": {"folder": str(folder)}}))))
        for folder in (here, there, moved)
    ]
    assert roots[0] == roots[1]
    assert roots[0] != roots[2]


def test_wrong_keys_of_a_scenario_are_named() -> None:
    for problem, message in (
        ({"data": "mnist", "files": {"image": "x"}}, r'problem\.files\.image: unknown key; did you mean "images"'),
        ({"data": "mnist", "limit": 0}, r"problem\.limit: got 0, wanted a number of at least 1"),
        ({"data": "mnist", "files": {"folder": 3}}, r"problem\.files\.folder: got 3, wanted text"),
        ({"data": "mnist", "files": {"folder": "nowhere"}}, r"problem\.files\.folder: '.*nowhere' is no folder"),
    ):
        with pytest.raises(InputError, match=message):
            build(decentral_dp.load(scenario(problem)))
