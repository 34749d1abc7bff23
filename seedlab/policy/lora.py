"""Optional LoRA for one GPU, through peft: adapters inside the model, so that nothing else changes."""

from __future__ import annotations

import torch

from seedlab.errors import UserError

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_ADAPTER = "default"


def require_lora() -> None:
    """Raises UserError where peft is not installed."""
    try:
        import peft  # noqa: F401
    except ImportError as error:
        raise UserError("model.lora_rank needs the package peft: pip install --constraint requirements/cpu.lock --editable '.[lora]'") from error


def add_lora(model, rank: int, alpha: int, *, seed: int) -> None:
    """Freeze the model and give its projections trainable adapters of `rank`, which change nothing until they are trained.

    Their random half is drawn from `seed` alone.  Raises UserError without peft.
    """
    require_lora()
    from peft import LoraConfig, inject_adapter_in_model

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS), model, adapter_name=_ADAPTER)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def has_lora(model) -> bool:
    return any(".lora_A." in name for name, _ in model.named_parameters())


def trainable_state(model) -> dict[str, torch.Tensor]:
    """The weights that are trained, by name; what a resumed run needs bit for bit."""
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters() if p.requires_grad}


@torch.no_grad()
def merged_state(model) -> dict[str, torch.Tensor]:
    """The state of the plain model whose weights have the adapters in them; the model itself stays as it is."""
    from peft.tuners.lora import LoraLayer

    state = {name.replace(".base_layer.", "."): t for name, t in model.state_dict().items() if ".lora_" not in name}
    for name, module in model.named_modules():
        if isinstance(module, LoraLayer):
            state[f"{name}.weight"] = module.get_base_layer().weight + module.get_delta_weight(_ADAPTER)
    return state
