"""Run by vLLM's own interpreter: episodes and skills of a random policy through vLLM, scored again by transformers."""

import json
import sys
from pathlib import Path

import torch

from seedlab.config.presets import load_config
from seedlab.envs import make_family
from seedlab.episodes.keys import stream_key
from seedlab.episodes.play import Episode
from seedlab.episodes.prompts import COMPACT_WORDS
from seedlab.policy.load import load_policy, wrap
from seedlab.policy.score import ScoreRow, score
from seedlab.policy.tiny import build_model
from seedlab.policy.tiny_tokenizer import build_tokenizer
from seedlab.skills import OwnAnalyzer, write_skills
from seedlab.train.session import Session


def make_policy(cfg, folder, seed):
    tokenizer = build_tokenizer([*make_family(cfg.env).vocabulary(), *COMPACT_WORDS], cfg.model.context)
    end = tokenizer.eos_token_id
    model = build_model(cfg.tiny.model_copy(update={"seed": seed}), len(tokenizer), cfg.model.context, eos=end, pad=tokenizer.pad_token_id)
    with torch.no_grad():
        model.get_input_embeddings().weight[end] *= 4
    wrap(model, tokenizer, cfg.model).save(folder)


def worst(policy, trajectories, temperature):
    rows, sampled = [], []
    for trajectory in trajectories:
        for step in trajectory.steps:
            start = len(step.prompt_ids)
            rows.append(ScoreRow(step.prompt_ids + step.response_ids, list(range(start, start + len(step.response_ids)))))
            sampled.append(torch.tensor(step.logprobs))
    again = score(policy.model, rows, temperature=temperature)
    return max(float((logp - old).abs().max()) for (logp, _), old in zip(again, sampled))


def play(session, temperature, count=3):
    tasks = session.panels["train"].task_ids[:count]
    return session.play([Episode(t, n) for t in tasks for n in range(2)], phase="u", update=0, seed=0, temperature=temperature)


def main(folder):
    # heads of 16 and up is what vLLM's CPU kernels take
    cfg = load_config("micro", [
        "tiny.hidden=64", "tiny.heads=2", "tiny.layers=2", "cluster.enforce_eager=true", "cluster.max_sequences=16",
        "cluster.gpu_memory_utilization=0.1",
    ])  # fmt: skip
    for seed in (0, 1):
        make_policy(cfg, folder / f"policy{seed}", seed)
    policy = load_policy(folder / "policy0", cfg.model)
    session = Session(cfg, policy, sampler="vllm")
    stops = set(policy.chat.stop_ids)
    sampled = play(session, 0.7)
    steps = [s for t in sampled for s in t.steps]
    greedy = play(session, 0.0)
    argmax = True
    for step in [s for t in greedy for s in t.steps]:
        ids = torch.tensor([step.prompt_ids + step.response_ids])
        with torch.no_grad():
            chosen = policy.model(input_ids=ids).logits[0, len(step.prompt_ids) - 1 : -1].argmax(-1)
        argmax = argmax and chosen.tolist() == step.response_ids
    analyzer = OwnAnalyzer(session.generator, policy.chat, cfg.analyzer)
    skills = write_skills(
        sampled, analyzer, session.prompts, policy.chat, cfg.analyzer, snapshot=0, key=lambda t: stream_key(0, "probe", t.id)
    ).skills
    result = {
        "episodes": len(sampled), "tokens": sum(len(s.response_ids) for s in steps), "worst_logprob": worst(policy, sampled, 0.7),
        "greedy_is_argmax": argmax, "samples_differ": len({tuple(s.response_ids) for s in steps}) > 3,
        "stops_end_answers": any(s.finish == "stop" for s in steps)
        and all((s.response_ids[-1] in stops) == (s.finish == "stop") for s in steps)
        and not any(token in stops for s in steps for token in s.response_ids[:-1]),
        "skills": len(skills),
    }  # fmt: skip
    session.weights_changed(folder / "policy1")
    changed = play(session, 0.7)
    result["after_weights_changed"] = worst(load_policy(folder / "policy1", cfg.model), changed, 0.7)
    session.generator.close()
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":  # vLLM's processes import this file again
    main(Path(sys.argv[1]))
