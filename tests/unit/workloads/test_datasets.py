import gzip
import pickle
import time
from pathlib import Path

import numpy as np
import pytest

from workloads.datasets import Dataset, DatasetError, check_dataset, fashion_mnist, load_dataset
from workloads.datasets.batches import BatchOrder
from workloads.datasets.fashion_mnist import FOLDER, SHAPES
from workloads.training import Images

installed = pytest.mark.skipif(not FOLDER.exists(), reason="needs the package dataset-fashion-mnist")


@installed
def test_fashion_mnist_loads_whole_and_fast() -> None:
    start = time.process_time()
    check_dataset("fashion-mnist")
    assert time.process_time() - start < 2
    data = load_dataset("fashion-mnist")
    assert data.train_images.shape == (60000, 1, 28, 28)
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    assert data.train_images.mean() / 255 == pytest.approx(data.mean[0], abs=1e-3)
    assert data.train_images.std() / 255 == pytest.approx(data.std[0], abs=1e-3)


@installed
@pytest.mark.parametrize("name", SHAPES)
def test_a_truncated_file_is_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    for other in SHAPES:
        (tmp_path / other).symlink_to(FOLDER / other)
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes((FOLDER / name).read_bytes()[:-1000])
    with pytest.raises(DatasetError, match="apt-get install dataset-fashion-mnist"):
        check_dataset("fashion-mnist", str(tmp_path))


def test_a_file_of_another_shape_or_no_gzip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    for content in (gzip.compress(b"\0\0\x08\x03" + bytes(100)), b"no gzip", b""):
        path.write_bytes(content)
        with pytest.raises(DatasetError, match="install"):
            check_dataset("fashion-mnist", str(tmp_path))


def test_missing_data_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetError, match="did you mean 'fashion-mnist'"):
        check_dataset("fashion")
    with pytest.raises(DatasetError, match="apt-get install"):
        check_dataset("fashion-mnist", str(tmp_path))
    with pytest.raises(DatasetError, match="data_dir"):
        check_dataset("cifar10")
    with pytest.raises(DatasetError, match="unpack"):
        check_dataset("cifar100", str(tmp_path))
    monkeypatch.setattr(fashion_mnist, "FOLDER", tmp_path / "none")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DatasetError, match="apt-get install"):
        check_dataset("fashion-mnist")


def test_cifar_binary_batches_load(tmp_path: Path) -> None:
    rows = np.zeros((10000, 3073), np.uint8)
    rows[:, 0] = np.arange(10000) % 10
    rows[:, 1:] = np.arange(3072) % 251
    for name in [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]:
        rows.tofile(tmp_path / name)
    check_dataset("cifar10", str(tmp_path))
    data = load_dataset("cifar10", str(tmp_path))
    assert data.train_images.shape == (50000, 3, 32, 32)
    assert data.test_labels[13] == 3
    assert data.test_images[5, 0, 1, 2] == 34
    rows[:-1].tofile(tmp_path / "test_batch.bin")
    with pytest.raises(DatasetError, match="truncated"):
        check_dataset("cifar10", str(tmp_path))


def test_cifar_python_batches_load_but_may_not_run_code(tmp_path: Path) -> None:
    def write(name: str, images: int) -> None:
        batch = {b"data": np.full((images, 3072), 7, np.uint8), b"fine_labels": [i % 100 for i in range(images)], b"coarse_labels": []}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))

    write("train", 50000)
    write("test", 10000)
    check_dataset("cifar100", str(tmp_path))
    data = load_dataset("cifar100", str(tmp_path))
    assert (data.classes, data.test_labels[42], int(data.test_images.max())) == (100, 42, 7)

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return exec, ("raise SystemExit('ran')",)

    (tmp_path / "test").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(DatasetError, match=r"builtins\.exec"):
        load_dataset("cifar100", str(tmp_path))


def test_ranks_share_an_epoch_without_overlap_and_alike_each_time() -> None:
    orders = [BatchOrder(103, 5, rank, 4, seed=3) for rank in range(4)]
    steps = orders[0].steps_per_epoch
    seen = [i for order in orders for step in range(steps) for i in order.indices(step)]
    assert len(seen) == len(set(seen)) == 4 * 5 * steps
    again = BatchOrder(103, 5, 2, 4, seed=3)
    assert np.array_equal(again.indices(steps + 1), orders[2].indices(steps + 1))
    assert not np.array_equal(again.indices(0), again.indices(steps))
    with pytest.raises(ValueError, match="one batch"):
        BatchOrder(10, 5, 0, 4, seed=3)


def test_batches_are_on_the_device_that_computes() -> None:
    some = Dataset(
        "some", np.zeros((4, 1, 2, 2), np.uint8), np.arange(4), np.zeros((2, 1, 2, 2), np.uint8), np.arange(2), (0.5,), (0.5,), 4
    )
    images, labels = Images(some, "meta").train(np.array([0, 2]))  # the one device beside the CPU that every machine has
    assert (images.device.type, labels.device.type) == ("meta", "meta")
    assert Images(some).test(np.array([1]))[1].tolist() == [1]
