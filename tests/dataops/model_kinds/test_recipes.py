"""Recipes: what is done to a module once it is loaded."""

import warnings

import pytest
import torch

from outrider.dataops.model_kinds.recipes import STEPS, LowRankLinear, apply_recipe, is_two_of_four
from outrider.dataops.model_kinds.source import RECIPE_STEPS
from outrider.errors import ConfigError


class Net(torch.nn.Module):
    """Words to two classes through a transformer: attention, plain linear layers, a tied-in LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids = x.long()
        hidden = self.encoder(self.words(ids), src_key_padding_mask=ids == 0)
        out: torch.Tensor = self.head(hidden.mean(dim=1))
        return out


def net() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Net().eval()


def words() -> torch.Tensor:
    return torch.randint(1, 50, (16, 12), generator=torch.Generator().manual_seed(1)).float()


@pytest.mark.parametrize(
    ("recipe", "most"),
    [
        (("bf16",), 0.03),
        (("int8_weight_only",), 0.03),
        (("int8_dynamic",), 0.05),
        (("fp8_weight_only",), 0.1),
        (("bf16", "int8_weight_only"), 0.05),
        ((), 0.0),
    ],
)
def test_a_recipe_changes_answers_by_rounding_alone_and_gives_float32(
    recipe: tuple[str, ...], most: float
) -> None:
    precision = torch.get_float32_matmul_precision()
    with torch.inference_mode():
        before = net()(words())
        after = apply_recipe(net(), recipe)(words())
    assert after.dtype == torch.float32
    assert (after - before).abs().max() <= most
    assert bool((after != before).any()) == bool(recipe)
    assert torch.get_float32_matmul_precision() == precision  # other models of the process round as before


@pytest.mark.parametrize("recipe", [("bf16",), ("int8_dynamic",)])
def test_what_is_said_of_a_row_does_not_depend_on_the_others_but_for_rounding(
    recipe: tuple[str, ...],
) -> None:
    module, x = apply_recipe(net(), recipe), words()
    x[3:] = x[3:].flip(1)
    with torch.inference_mode():
        torch.testing.assert_close(module(x)[:3], module(x[:3]), atol=0.02, rtol=0)


def test_int8_activations_are_scaled_row_by_row() -> None:
    module = apply_recipe(torch.nn.Sequential(torch.nn.Linear(64, 32)), ("int8_dynamic",))
    x = torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    alone = module(x[:5])
    x[5:] *= 100
    assert torch.equal(module(x)[:5], alone)


def test_a_module_of_floats_takes_float32_in_bf16() -> None:
    dense = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    module = apply_recipe(dense, ("bf16",))
    assert next(module.parameters()).dtype == torch.bfloat16
    assert module(torch.randn(4, 8)).dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_an_unknown_step_is_named_with_those_that_there_are_before_anything_is_changed() -> None:
    module = net()
    with pytest.raises(ConfigError, match=r"no step 'int9'; there are bf16, int8_weight_only"):
        apply_recipe(module, ("bf16", "int9"))
    assert next(module.parameters()).dtype == torch.float32


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device that can")
def test_a_step_that_the_device_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be done on cpu"):
        apply_recipe(net(), ("fp8_dynamic",))


def test_a_module_without_linear_layers_cannot_be_quantised() -> None:
    with pytest.raises(ConfigError, match="Conv2d has no linear layer"):
        apply_recipe(torch.nn.Conv2d(1, 1, 3), ("int8_weight_only",))


def test_semi_structured_weights_stay_dense_where_the_device_has_no_use_for_them() -> None:
    layer = torch.nn.Linear(8, 4)
    module = torch.nn.Sequential(layer)
    with torch.no_grad():
        layer.weight[:, ::2] = 0
    assert is_two_of_four(layer.weight)
    assert not is_two_of_four(torch.ones(4, 8))
    x = torch.randn(2, 8)
    before = module(x)
    assert torch.equal(apply_recipe(module, ("semi_structured",))(x), before)


def test_low_rank_halves_linear_layers_and_is_exact_for_weights_of_that_rank() -> None:
    thin = apply_recipe(net(), ("low_rank",))
    layer = thin.get_submodule("encoder.layers.0.linear1")
    assert isinstance(layer, LowRankLinear)
    assert layer.up.numel() + layer.down.numel() <= 32 * 64 // 2
    assert type(thin.get_submodule("head")) is torch.nn.Linear  # two classes: no rank is half
    assert not any(parameter.requires_grad for parameter in thin.parameters())
    dense = net()
    dense.load_state_dict(thin.state_dict())
    again = apply_recipe(net(), ("low_rank",))
    for module in (dense, again):
        with torch.inference_mode():
            torch.testing.assert_close(module(words()), thin(words()))
    exact = apply_recipe(dense, ("low_rank",))
    torch.testing.assert_close(exact.state_dict(), thin.state_dict(), atol=1e-5, rtol=1e-4)


def test_low_rank_takes_the_nearest_weights() -> None:
    layer = torch.nn.Linear(32, 48)
    want = torch.linalg.svdvals(layer.weight.detach())[9:].square().sum()
    thin = apply_recipe(torch.nn.Sequential(torch.nn.Linear(32, 48)).requires_grad_(False), ("low_rank",))
    module = torch.nn.Sequential(layer)
    before = layer.weight.detach().clone()
    found = apply_recipe(module, ("low_rank",))[0].weight  # type: ignore[index]
    assert isinstance(thin[0], LowRankLinear)  # type: ignore[index]
    assert float((found - before).square().sum()) <= 1.05 * float(want)


def test_low_rank_refuses_a_module_without_a_layer_to_take_apart() -> None:
    with pytest.raises(ConfigError, match="Linear has no linear layer that could be taken apart"):
        apply_recipe(torch.nn.Linear(64, 64), ("low_rank",))


def test_every_step_is_one_that_a_test_tries() -> None:
    assert tuple(STEPS) == RECIPE_STEPS
    assert set(STEPS) == {
        "bf16", "int8_weight_only", "int8_dynamic", "fp8_weight_only", "fp8_dynamic", "semi_structured",
        "low_rank",
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.filterwarnings("ignore", message=".*register_constant.*")
