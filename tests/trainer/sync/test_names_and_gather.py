"""What is trained, under the names that a checkpoint of it has, and none of it touched."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import nn
from transformers import Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from agentgym.errors import ConfigError, UsageError
from agentgym.trainer.sync.gather import contents_of

Make = Callable[[], Qwen3ForCausalLM]
TARGETS = ["q_proj", "down_proj"]


def gathered(model: nn.Module, kind: str = "full", size: int = 1 << 20) -> dict[str, torch.Tensor]:
    contents = contents_of(model, "full" if kind == "full" else "lora")
    tensors = {n: t.clone() for bucket in contents.buckets(size) for n, t in bucket.items()}
    assert {n: s.shape for n, s in contents.specs.items()} == {
        n: tuple(t.shape) for n, t in tensors.items()
    }
    return tensors


def adapted(model: Qwen3ForCausalLM, **settings: object) -> nn.Module:
    """With an adapter that says something."""
    given: dict[str, object] = {"r": 4, "target_modules": TARGETS, "task_type": "CAUSAL_LM"}
    config = LoraConfig(**{**given, **settings})  # type: ignore[arg-type]
    peft_model: nn.Module = get_peft_model(model, config)
    for name, parameter in peft_model.named_parameters():
        if "lora_" in name or "trainable_tokens" in name:
            nn.init.normal_(parameter, std=0.2)
    return peft_model


@pytest.mark.parametrize("wrapping", ["none", "data parallel", "compiled"])
def test_names_and_values_are_those_of_the_checkpoint(
    make_model: Make, tmp_path: Path, wrapping: str
):
    """What wrappers add to names no engine knows; a tied head is in the file once."""
    model = make_model()
    model.save_pretrained(tmp_path)
    wrapped: nn.Module = model
    if wrapping == "data parallel":
        wrapped = nn.DataParallel(model)
    if wrapping == "compiled":
        wrapped = torch.compile(model)  # type: ignore[assignment]

    saved, found = load_file(tmp_path / "model.safetensors"), gathered(wrapped)
    assert found.keys() == saved.keys()
    assert all(torch.equal(found[name], saved[name]) for name in saved)


def test_experts_are_sent_as_they_lie_in_the_files(tmp_path: Path):
    """In the model they are one tensor, which no server that was started from the files knows."""
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=8,
            moe_intermediate_size=8,
            num_experts=3,
            num_experts_per_tok=1,
        )
    )
    model.save_pretrained(tmp_path)
    saved, found = load_file(tmp_path / "model.safetensors"), gathered(model)

    assert found.keys() == saved.keys()
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    assert contents_of(model, "full", as_saved=False).specs.keys() == model.state_dict().keys()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"use_rslora": True},
        {"trainable_token_indices": [1, 5]},
        {"target_modules": [], "target_parameters": ["mlp.up_proj.weight", "mlp.down_proj.weight"]},
    ],
    ids=str,
)
def test_an_adapter_is_merged_without_a_bit_of_the_trained_weights_changing(
    make_model: Make, settings: dict[str, object]
):
    """Merging in place and back again would leave the rounding of two additions behind."""
    model = adapted(make_model(), **settings)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    found = gathered(model)

    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    merged = model.merge_and_unload()  # type: ignore[operator]
    expected = merged.state_dict()
    if "modules_to_save" not in settings:
        del expected["lm_head.weight"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-6)


def test_a_name_that_begins_like_a_setting_of_an_adapter_is_no_part_of_it(make_model: Make):
    """PEFT keeps its ranks under `r`; a router, as mixtures of experts have, is a weight."""
    model = make_model()
    model.model.layers[0].router = nn.Linear(2, 2)

    name = "model.layers.0.router.weight"
    assert torch.equal(gathered(adapted(model))[name], model.model.layers[0].router.weight)


@pytest.mark.parametrize("targets", [["embed_tokens"], ["lm_head"], ["embed_tokens", "lm_head"]])
def test_an_adapter_that_parts_tied_weights_is_refused(make_model: Make, targets: list[str]):
    """The engine has one tensor for both, and would sample from another policy than is trained."""
    with pytest.raises(ConfigError, match=r"embed_tokens\.weight and lm_head\.weight are one"):
        gathered(adapted(make_model(), target_modules=[*TARGETS, *targets]))


def test_tensors_that_wrappers_alone_tell_apart_are_refused(make_model: Make):
    """One of them would silently be sent in place of the other."""
    model = make_model()
    model.module = nn.ParameterDict({"a": torch.ones(1)})
    model.a = nn.Parameter(torch.zeros(1))

    with pytest.raises(ConfigError, match="two tensors of the model are called 'a'"):
        gathered(model)


def test_an_adapter_alone_is_what_peft_saves(make_model: Make, tmp_path: Path):
    """An engine reads it as it would read the file."""
    model = adapted(make_model())
    model.save_pretrained(tmp_path)  # type: ignore[operator]

    saved, found = load_file(tmp_path / "adapter_model.safetensors"), gathered(model, "lora")
    config = contents_of(model, "lora").lora_config
    assert found.keys() == saved.keys()
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    assert (config["r"], config["peft_type"], config["inference_mode"]) == (4, "LORA", True)
    assert config["target_modules"] == sorted(TARGETS)


def test_an_adapter_is_only_asked_of_a_model_that_has_one(make_model: Make):
    with pytest.raises(ConfigError, match="the model has none"):
        contents_of(make_model(), "lora")


def test_an_adapter_whose_start_changes_the_weights_below_it_is_not_sent_alone(make_model: Make):
    """Over the weights of the model's files it is another policy; merged, it is the right one."""
    model = adapted(make_model(), init_lora_weights="olora")

    with pytest.raises(ConfigError, match=r"init_lora_weights='olora'.*sync_kind='full'"):
        contents_of(model, "lora")
    assert contents_of(model, "full").specs


@pytest.mark.parametrize("size", [1, 4096, 1 << 30])
def test_buckets_hold_everything_once_and_no_more_than_they_may(make_model: Make, size: int):
    """One tensor may be larger than a bucket; nothing else is."""
    model = make_model()
    buckets = list(contents_of(model, "full").buckets(size))

    names = [name for bucket in buckets for name in bucket]
    assert len(names) == len(set(names)) == len(contents_of(model, "full").specs)
    assert all(
        len(bucket) == 1 or sum(t.nbytes for t in bucket.values()) <= size for bucket in buckets
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_named_and_never_sent(make_model: Make, value: float):
    """An engine that got it would sample nonsense from then on."""
    model = make_model()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[3, 4] = value

    with pytest.raises(UsageError, match=r"1 of \d+ numbers in .*layers\.1\.mlp\.up_proj\.weight"):
        gathered(model)
