"""Optional LoRA for one GPU, through peft: adapters inside the model, so that nothing else changes."""

from __future__ import annotations

import torch

from seedlab.errors import UserError

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def add_lora(model, rank: int, alpha: int) -> None:
    """Freeze the model and give its projections trainable adapters of `rank`; raises UserError without peft."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError("model.lora_rank needs the package peft: pip install peft") from error
    inject_adapter_in_model(LoraConfig(r=rank, lora_alpha=alpha, target_modules=TARGETS), model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def trainable_state(model) -> dict[str, torch.Tensor]:
    """The weights that are trained, by name; what a resumed run needs bit for bit."""
    return {name: p.detach().cpu().clone() for name, p in model.named_parameters() if p.requires_grad}
