import pytest
import torch

from workloads.models import TRAINABLE, build_model
from workloads.models.sizes import layer_sizes, replayable


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("resnet18", 11_227_812), ("vgg16", 134_670_244), ("resnet50", 25_557_032), ("resnet110", 1_727_962), ("gpt2-small", 124_439_808)],
)
def test_named_gradients_have_the_published_sizes(name: str, parameters: int) -> None:
    assert sum(layer_sizes(name)) == parameters


@pytest.mark.parametrize("name", ["small_cnn", "resnet8", "resnet20"])
def test_trainable_names_have_the_real_models_sizes(name: str) -> None:
    assert layer_sizes(name) == [p.numel() for p in build_model(name, 3, 10).parameters()]


@pytest.mark.parametrize("name", TRAINABLE)
def test_every_model_takes_both_kinds_of_images(name: str) -> None:
    assert build_model(name, 1, 10)(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert build_model(name, 3, 100)(torch.zeros(2, 3, 32, 32)).shape == (2, 100)


def test_unknown_models_are_named() -> None:
    assert "gpt2-small" in replayable()
    with pytest.raises(ValueError, match="small_cnn"):
        build_model("lenet", 1, 10)
    with pytest.raises(ValueError, match="vgg16"):
        layer_sizes("lenet")
