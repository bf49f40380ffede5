"""Files as other projects write them, and files that are wrong."""

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_files import (
    LENET,
    Standardise,
    cifar_resnet,
    imagenet_resnet50,
    save_as_cohen,
    save_as_zhai,
    tensors_of,
    trained,
)
from safetensors.torch import save_file
from torch import Tensor, nn

from macer.models.build import build_model
from macer.models.networks import MODELS, resnet20
from macer.models.weights import Placement, load_weights, read_weights
from macer.system.errors import Mistake

LEGACY = {"_use_new_zipfile_serialization": False}  # how torch wrote before version 1.6
IDENTITY = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("w.pth")


def fresh(seed: int = 0, num_classes: int = 10) -> nn.Module:
    torch.manual_seed(seed)
    return resnet20(num_classes=num_classes, channels=3)


def loaded(path: Path, *, seed: int = 5) -> tuple[nn.Module, Placement]:
    network = fresh(seed)
    return network.eval(), load_weights(network, read_weights(path), "resnet20")


def save(tensors: object, path: Path = Path("w.pth")) -> None:
    torch.save(tensors, path)


def in_sequence(network: nn.Module) -> nn.Module:
    return nn.Sequential(Standardise(*IDENTITY), network)


# Reference: what the projects write


def as_zhai(network: nn.Module, path: Path) -> None:
    save_as_zhai(network, path)


def as_zhai_legacy(network: nn.Module, path: Path) -> None:
    save_as_zhai(network, path, **LEGACY)


def as_zhai_in_protocol_3(network: nn.Module, path: Path) -> None:
    save_as_zhai(network, path, pickle_protocol=3)  # of which torch warns


def as_zhai_in_protocol_4(network: nn.Module, path: Path) -> None:
    save_as_zhai(network, path, pickle_protocol=4)  # which torch does not read safely


def as_cohen(network: nn.Module, path: Path) -> None:
    model = in_sequence(network)
    save_as_cohen(model, trained(model), path, arch="cifar_resnet20")


def as_cohen_legacy(network: nn.Module, path: Path) -> None:
    model = in_sequence(network)
    save_as_cohen(model, trained(model), path, arch="cifar_resnet20", **LEGACY)


def as_cohen_for_imagenet(network: nn.Module, path: Path) -> None:
    model = in_sequence(nn.DataParallel(network))
    save_as_cohen(model, trained(model), path, arch="resnet50")


def as_data_parallel(network: nn.Module, path: Path) -> None:
    save({"model_state_dict": nn.DataParallel(network).state_dict(), "loss": 0.5}, path)


def as_compiled(network: nn.Module, path: Path) -> None:
    save({f"_orig_mod.{name}": tensor for name, tensor in network.state_dict().items()}, path)


def as_parameters_and_buffers(network: nn.Module, path: Path) -> None:
    save(dict(network.named_parameters()) | dict(network.named_buffers()), path)


def as_safetensors(network: nn.Module, path: Path) -> None:
    save_file(network.state_dict(), path)


def as_the_second_of_a_sequence_in_safetensors(network: nn.Module, path: Path) -> None:
    save_file(in_sequence(network).state_dict(), path)


PLAIN = [
    as_zhai, as_zhai_legacy, as_zhai_in_protocol_3, as_zhai_in_protocol_4, as_data_parallel,
    as_compiled, as_parameters_and_buffers, as_safetensors,
]  # fmt: skip
BEHIND = [
    as_cohen, as_cohen_legacy, as_cohen_for_imagenet, as_the_second_of_a_sequence_in_safetensors,
]  # fmt: skip


@pytest.mark.parametrize("write", [*PLAIN, *BEHIND])
def test_a_file_gives_the_logits_of_the_network_it_came_from(
    write: Callable[[nn.Module, Path], None], path: Path
) -> None:
    network = fresh()
    trained(network)
    write(network, path)
    network.eval()
    again, place = loaded(path)
    x = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(x), network(x))
    assert place == Placement("" if write in PLAIN else "1.", {})
    assert place.may_lack_normalisation == (write in BEHIND)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "shapes", "num_classes", "images"),
    [
        ("lenet", LENET, 10, (1, 28, 28)),
        ("resnet20", cifar_resnet(20), 10, (3, 32, 32)),
        ("resnet110", cifar_resnet(110), 10, (3, 32, 32)),
        ("resnet110", cifar_resnet(110, 100), 100, (3, 32, 32)),
        ("resnet50", imagenet_resnet50(), 1000, (3, 64, 64)),
    ],
)
def test_a_network_has_the_names_and_shapes_of_published_files(
    name: str,
    shapes: dict[str, tuple[int, ...]],
    num_classes: int,
    images: tuple[int, int, int],
    path: Path,
) -> None:
    tensors = tensors_of(shapes)
    save({"arch": name, "state_dict": {f"1.module.{key}": t for key, t in tensors.items()}})
    network = MODELS[name](num_classes=num_classes, channels=images[0])
    load_weights(network, read_weights(path), name)
    state = network.state_dict()
    assert set(state) == set(tensors)
    assert all(torch.equal(state[key], tensor) for key, tensor in tensors.items())


# Laws


def test_the_hash_is_that_of_the_file(path: Path) -> None:
    import hashlib

    save_as_zhai(fresh(), path)
    assert read_weights(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_says_what_it_calls_its_network(path: Path) -> None:
    as_cohen(fresh(), path)
    assert read_weights(path).architecture == "cifar_resnet20"
    save_as_zhai(fresh(), path)
    assert read_weights(path).architecture is None


def test_counts_of_batches_may_be_missing(path: Path) -> None:
    """Files of torch before 0.4.1 have none."""
    network = fresh()
    trained(network)
    save({key: t for key, t in network.state_dict().items() if "num_batches" not in key})
    again, _ = loaded(path)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(x), network(x))


def test_half_precision_is_rounded_once_and_not_again(path: Path) -> None:
    network = fresh()
    save({key: t.half() if t.is_floating_point() else t for key, t in network.state_dict().items()})
    again, _ = loaded(path)
    for key, tensor in network.state_dict().items():
        expected = tensor.half().float() if tensor.is_floating_point() else tensor
        assert torch.equal(again.state_dict()[key], expected)


def test_a_users_network_keeps_the_layer_it_has_before(path: Path) -> None:
    """Names that agree as they stand need nothing before the network: it has it inside."""
    mine = nn.Sequential(Standardise((0.1, 0.2, 0.3), (0.5, 0.5, 0.5)), fresh())
    save_as_cohen(mine, trained(mine), path, arch="mine")
    again = nn.Sequential(Standardise((0.1, 0.2, 0.3), (0.5, 0.5, 0.5)), fresh(3)).eval()
    place = load_weights(again, read_weights(path), "nets:mine")
    assert place == Placement("", {}) and not place.may_lack_normalisation
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(x), mine(x))


@pytest.mark.parametrize(
    ("prefix", "silent"),
    [("", False), ("0.", False), ("0.0.", False), ("1.", True), ("0.1.", True), ("model.", True)],
)
def test_a_network_inside_another_module_may_stand_behind_something(
    prefix: str, silent: bool, path: Path
) -> None:
    save({prefix + key: tensor for key, tensor in fresh().state_dict().items()})
    _, place = loaded(path)
    assert (place.prefix, place.may_lack_normalisation) == (prefix, silent)


@pytest.mark.parametrize(
    ("mean", "std"),
    [
        ("0.mean", "0.std"),
        ("0.means", "0.sds"),
        ("normalize.mean", "normalize.std"),
        ("mean", "std"),
    ],
)
def test_constants_in_the_file_are_found(mean: str, std: str, path: Path) -> None:
    constants = {mean: torch.tensor([0.1, 0.2, 0.3]), std: torch.full((1, 3, 1, 1), 0.5)}
    save({f"1.{key}": tensor for key, tensor in fresh().state_dict().items()} | constants)
    _, place = loaded(path)
    assert not place.may_lack_normalisation
    assert place.constants["mean"] is not None and set(place.constants) == {"mean", "std"}
    assert torch.equal(place.constants["mean"], constants[mean])
    assert torch.equal(place.constants["std"], constants[std])


def test_a_model_of_macer_is_a_file_like_others(path: Path) -> None:
    model = build_model("resnet20", num_classes=10, shape=(3, 32, 32), mean=(0.1, 0.2, 0.3))
    save_file(model.state_dict(), path)
    again, place = loaded(path)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(x), model[1].eval()(x))
    assert place.prefix == "1." and torch.equal(place.constants["mean"], model[0].mean)


# Files that would run code


class Trap:
    """What a pickle calls when it is loaded carelessly: it makes a file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, ("trapped",)


def refused(path: Path, line: str) -> None:
    """Reading or loading fails with exactly this line, and nothing was run."""
    with pytest.raises(Mistake, match=f"^{re.escape(line)}$"):
        loaded(path)
    assert not Path("trapped").exists()


@pytest.mark.parametrize("how", [{}, LEGACY])
def test_a_file_that_would_run_code_is_refused_and_runs_none(
    how: dict[str, bool], path: Path
) -> None:
    torch.save({"state_dict": fresh().state_dict(), "epoch": Trap()}, path, **how)
    line = (
        "w.pth must hold only tensors and plain values, got posix.mkdir, which could run "
        "code; save the network's state_dict() alone"
    )
    refused(path, line)
    torch.load(path, weights_only=False)
    assert Path("trapped").exists()  # the trap is a real one


@pytest.mark.parametrize("protocol", range(6))
def test_a_bare_pickle_is_refused_and_runs_nothing(protocol: int, path: Path) -> None:
    path.write_bytes(pickle.dumps({"state_dict": Trap()}, protocol))
    with pytest.raises(Mistake, match=r"^w\.pth must "):
        read_weights(path)
    assert not Path("trapped").exists()


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        (nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        ({"net": {}, "best": np.float64(1)}, "numpy._core.multiarray.scalar"),
    ],
)
def test_objects_beside_tensors_are_refused_by_name(saved: object, wanted: str, path: Path) -> None:
    save(saved)
    refused(
        path,
        f"w.pth must hold only tensors and plain values, got {wanted}, which could run "
        "code; save the network's state_dict() alone",
    )


# Files that are damaged or something else

DAMAGED = "w.pth must be a file of torch.save or of safetensors; it is damaged or something else"


@pytest.mark.parametrize("write", [as_zhai, as_zhai_legacy, as_safetensors])
def test_a_file_cut_short_is_refused(write: Callable[[nn.Module, Path], None], path: Path) -> None:
    write(nn.Linear(30, 20), path)
    content = path.read_bytes()
    # A cut inside the name of a class leaves another name, which is not admitted.
    line = rf"({re.escape(DAMAGED)}|w\.pth must hold only tensors and plain values, got .*)"
    for size in [*range(0, 300, 7), *range(300, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(Mistake, match=f"^{line}$"):
            read_weights(path)


@pytest.mark.parametrize("write", [as_zhai, as_zhai_legacy, as_safetensors])
def test_a_damaged_file_is_refused_or_read(
    write: Callable[[nn.Module, Path], None], path: Path
) -> None:
    """Numbers may be damaged unseen, which the hash tells; no damage gives a traceback."""
    write(nn.Linear(30, 20), path)
    content, random = path.read_bytes(), np.random.default_rng(0)
    told = 0
    for _ in range(200):
        damaged = bytearray(content)
        for place in random.integers(len(content) // 2, size=3):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            read_weights(path)
        except Mistake as mistake:
            told += 1
            assert "\n" not in str(mistake) and str(mistake).startswith("w.pth must ")
    assert told > 10


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04"])
def test_something_else_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    refused(path, DAMAGED)


def test_a_file_that_is_not_there_is_refused(path: Path) -> None:
    line = "no weights at {}: expected a file of torch.save or of safetensors"
    refused(path, line.format(path))
    refused(Path(), line.format("."))


@pytest.mark.parametrize(
    ("saved", "line"),
    [
        ([torch.ones(2)], "w.pth must hold tensors by name, got a list"),
        (torch.ones(2), "w.pth must hold tensors by name, got a Tensor"),
        ({}, "w.pth must hold the weights of a network, got nothing"),
        ({"epoch": 3}, "w.pth must hold the weights of a network, got 'epoch'"),
        ({0: torch.ones(2)}, "w.pth must hold the weights of a network, got 0"),
        (
            {"net": {"a": torch.ones(2)}, "ema": {"a": torch.ones(2)}, "epoch": 1},
            "w.pth must hold the weights of one network, got 'net' and 'ema'; save one alone",
        ),
        (
            {"a.weight": torch.ones(2), "module.a.weight": torch.ones(2)},
            "w.pth must have one tensor a.weight, got a.weight and module.a.weight",
        ),
    ],
)
def test_a_file_without_the_weights_of_one_network_is_refused(
    saved: object, line: str, path: Path
) -> None:
    save(saved)
    refused(path, line)


# Weights of another network


def changed(**changes: Tensor | None) -> dict[str, Tensor]:
    """The weights of a resnet20, with some replaced, added or (None) left out."""
    tensors = dict(fresh().state_dict())
    for key, tensor in changes.items():
        name = key.replace("__", ".")
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    return tensors


FIT = "w.pth must hold the weights of resnet20: it "


@pytest.mark.medium
@pytest.mark.parametrize(
    ("saved", "line"),
    [
        (lambda: changed(bn1__weight=None), "lacks bn1.weight"),
        (lambda: changed(extra=torch.ones(3)), "also has extra"),
        (lambda: changed(std=torch.ones(3)), "also has std"),
        (
            lambda: changed(fc__weight=torch.ones(100, 64), fc__bias=torch.ones(100)),
            "has fc.weight as 100×64, not 10×64 and 1 more",
        ),
        (
            lambda: changed(fc__weight=torch.ones(10, 64, dtype=torch.int8)),
            "has fc.weight as int8 10×64, not 10×64",
        ),
        (
            lambda: {"arch": "lenet9", "state_dict": {"a": torch.ones(2)}},
            "lacks conv1.weight, bn1.weight, bn1.bias and 104 more, also has a; it calls its "
            "network lenet9",
        ),
        (
            lambda: tensors_of(cifar_resnet(32)),
            "also has layer1.3.bn1.bias, layer1.3.bn1.num_batches_tracked, "
            "layer1.3.bn1.running_mean and 69 more",
        ),
        (
            lambda: {f"1.{k}": t for k, t in changed().items()} | {"fc.bias": torch.ones(10)},
            "also has fc.bias",
        ),
        (
            lambda: {"a": torch.ones(2)},
            "lacks conv1.weight, bn1.weight, bn1.bias and 104 more, also has a",
        ),
    ],
)
def test_weights_of_another_network_are_refused(
    saved: Callable[[], object], line: str, path: Path
) -> None:
    save(saved())
    refused(path, FIT + line)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("saved", "known"),
    [
        (lambda: {"arch": "lenet", "state_dict": tensors_of(LENET)}, "lenet"),
        (lambda: MODELS["resnet20a"](num_classes=100, channels=1).state_dict(), "resnet20a"),
        (
            lambda: nn.ModuleDict(
                {"1": MODELS["mobilenetv2"](num_classes=2, channels=3)}
            ).state_dict(),
            "mobilenetv2 or mobilenetv2-same",
        ),
    ],
)
def test_the_network_whose_weights_a_file_holds_is_named(
    saved: Callable[[], object], known: str, path: Path
) -> None:
    save(saved())
    refused(
        path,
        f"w.pth must hold the weights of resnet20, got those of {known}; name that network",
    )


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (lambda: torch.ones(10, 64).to_sparse(), "_rebuild_sparse_tensor"),
        (lambda: torch.ones(10, 64, device="meta"), "_rebuild_meta_tensor_no_storage"),
    ],
)
def test_tensors_that_are_not_dense_are_refused(
    kind: Callable[[], Tensor], function: str, path: Path
) -> None:
    save(changed(fc__weight=kind()))
    refused(
        path,
        f"w.pth must hold only tensors and plain values, got torch._utils.{function}, "
        "which is no plain tensor; save the network's state_dict() alone",
    )


def test_a_file_with_the_network_twice_is_refused(path: Path) -> None:
    tensors = fresh().state_dict()
    save(
        {f"{of}.{key}": tensor for of in ("teacher", "student") for key, tensor in tensors.items()}
    )
    refused(
        path, "w.pth must hold resnet20 once, got it at 'student.' and 'teacher.'; save one alone"
    )


def test_a_network_without_weights_takes_none(path: Path) -> None:
    save_as_zhai(fresh(), path)
    line = "^flat must have weights to load, got none; leave out --weights$"
    with pytest.raises(Mistake, match=line):
        load_weights(nn.Flatten(), read_weights(path), "flat")
