from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rmrl.errors import CheckpointError, InfrastructureError
from rmrl.inference.weights.file import manifest_bytes, read_weights, write_weights
from rmrl.inference.weights.shared_memory import weight_folder

TENSORS = {
    "b.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "a.weight": torch.tensor([1.5, -2.0, 3.25], dtype=torch.bfloat16),
    "scalar": torch.tensor(7, dtype=torch.int64),
    "mask": torch.tensor([True, False]),
    "empty": torch.zeros(0, 4, dtype=torch.float16),
}
MANIFEST = [(name, t.dtype, tuple(t.shape)) for name, t in TENSORS.items()]


def test_round_trip_in_the_order_of_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    size = write_weights(path, MANIFEST, TENSORS.items())
    assert size == path.stat().st_size
    read = list(read_weights(path))
    assert [name for name, _ in read if name != "empty"] == [
        "b.weight",
        "a.weight",
        "scalar",
        "mask",
    ]
    for name, tensor in read:
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_other_readers_of_the_format_agree(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, MANIFEST, TENSORS.items())
    loaded = load_file(path)
    assert loaded.keys() == TENSORS.keys()
    assert all(torch.equal(loaded[name], tensor) for name, tensor in TENSORS.items())


def test_any_order_and_strided_tensors(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    transposed = torch.arange(6, dtype=torch.float32).reshape(3, 2).t()
    tensors = {"x": transposed, "y": torch.ones(2)}
    write_weights(
        path, [(n, t.dtype, t.shape) for n, t in tensors.items()], reversed(tensors.items())
    )
    assert dict(read_weights(path))["x"].tolist() == [[0, 2, 4], [1, 3, 5]]


def test_dtypes_may_be_spelled(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, [("x", "bfloat16", [2])], [("x", torch.ones(2, dtype=torch.bfloat16))])
    assert next(read_weights(path))[1].dtype == torch.bfloat16


def test_bytes_of_a_manifest() -> None:
    assert manifest_bytes(MANIFEST) == 6 * 4 + 3 * 2 + 8 + 2 + 0


def test_the_writer_holds_one_tensor_at_a_time(tmp_path: Path) -> None:
    alive: list[int] = []
    count = 0

    class Watched(torch.Tensor):
        def __del__(self) -> None:
            nonlocal count
            count -= 1

    def stream():
        nonlocal count
        for i in range(8):
            tensor = torch.full((1000,), float(i)).as_subclass(Watched)
            count += 1
            alive.append(count)
            yield f"t{i}", tensor
            del tensor

    write_weights(
        tmp_path / "w.safetensors", [(f"t{i}", "float32", [1000]) for i in range(8)], stream()
    )
    assert max(alive) <= 2  # the one being made and the one being let go


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([("x", torch.ones(3))], "announced as torch.float32"),
        ([("x", torch.ones(2, dtype=torch.bfloat16))], "announced as torch.float32"),
        ([("x", torch.ones(2)), ("x", torch.ones(2))], "does not announce"),
        ([("z", torch.ones(2))], "does not announce"),
        ([], "never arrived"),
    ],
)
def test_refusals_leave_the_older_file_alone(
    tmp_path: Path, tensors: list[tuple[str, torch.Tensor]], message: str
) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"older")
    with pytest.raises(CheckpointError, match=message):
        write_weights(path, [("x", torch.float32, (2,))], tensors)
    assert path.read_bytes() == b"older"
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_a_reader_keeps_what_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    manifest = [("x", "float32", [2])]
    write_weights(path, manifest, [("x", torch.zeros(2))])
    _, older = next(read_weights(path))
    write_weights(path, manifest, [("x", torch.ones(2))])
    assert older.tolist() == [0, 0]
    assert next(read_weights(path))[1].tolist() == [1, 1]


def test_a_folder_with_room() -> None:
    assert weight_folder(1000).is_dir()
    with pytest.raises(InfrastructureError, match="shm-size"):
        weight_folder(1 << 60)
