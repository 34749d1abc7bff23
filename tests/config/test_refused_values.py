"""Values that would end a run only after much of it is done are refused before it starts."""

import pytest

from seedlab.cli.main import main
from seedlab.config.names import flatten, schema_fields
from seedlab.config.presets import PRESETS, load_config
from seedlab.config.schema import Config
from seedlab.config.starting import refuse_to_start
from seedlab.errors import ConfigError

REFUSED = {
    "evaluation.panels=[sen]": "names 'sen', which is no panel",
    "evaluation.panels=[seen,seen]": "names a panel twice",
    "env.panel_limits.seen=0": "names 'seen', which has no tasks",
    "stage2.minibatches=0": "stage2.minibatches=0: input should be greater than or equal to 1",
    "stage2.betas=[1.5,2]": r"stage2.betas\[0\]=1.5",
    "objective.dual_clip=0.5": "greater than 1",
    "objective.kl_coef=-1": "greater than or equal to 0",
    "seed=99999999999999999999": "seed=",
    "external.base_url=https://user:word@host/v1": "external.base_url",
    "stage2.group_size=1": "leaves a group-relative advantage nothing to compare with.*objective.rl_coef=0",
    "objective={rl_coef: 0, opd_coef: 0, entropy_coef: 0}": "nothing is learned",
    "objective.opd_coef=-0.01": "objective.opd_coef=-0.01.*greater than or equal to 0 .lambda_opd",
    "objective.rl_coef=-1": "objective.rl_coef",
    "objective.beta=-5": "objective.beta",
    "objective.entropy_coef=-0.1": "objective.entropy_coef",
    "objective={rl_coef: 0, skill_advantage: scaled}": "changes the advantages of the policy loss, which objective.rl_coef=0 leaves out",
    "objective={schedule: ramp, opd_coef: 0}": "objective.schedule=ramp has nothing to change",
    "objective.critical_steps=5": "only the scripted and the external analyzer write.*skill_from=own",
    "objective={baseline: mean, opd_coef: 0}": "objective.baseline=mean is subtracted from the gate",
    "objective={baseline: mean, opd_form: log_ratio}": "objective.baseline=mean.*opd_form=log_ratio",
    "objective.average_skills=2": "analyzer.temperature=0 would be the same skill",
    "objective={average_skills: 2, skill_from: scripted}": "objective.skill_from=scripted has one",
    "objective={average_skills: 8, skill_from: mate}": "more group mates than stage2.group_size=8 leaves; take at most 7",
    "objective={average_skills: 2, skill_from: mate, support: full}": "objective.support=full reads one skill per row",
    "objective={support: full, teacher: once}": "objective.teacher=once keeps one log-prob per token",
    "objective={support: topk, baseline: mean}": "objective.support=topk has no use for objective.baseline=mean",
    "objective={baseline: context, skill_from: static}": "objective.baseline=context reads a group mate's skill",
    "objective.scale_low=0": "objective.scale_low",
    "evaluation.panels=[train]": "evaluation.panels names 'train', whose tasks are trained on",
    "evaluation.panels=[stage1]": "names 'stage1', whose tasks are trained on",
    "store.tokens=-1": "store.tokens=-1.*greater than or equal to 1",
    "store.tokens=0": "store.tokens=0",
    "tiny.expert_noise=[-0.1,0.4]": "tiny.expert_noise=-0.1,0.4 must be two shares",
    "tiny.expert_noise=[0.1,1.4]": "tiny.expert_noise",
    "tiny.expert_noise=[0.4,0.05]": "tiny.expert_noise",
    "tiny.hidden=130": "tiny.hidden=130 is not an even multiple of tiny.heads=4",
    "tiny.kv_heads=3": "tiny.heads=4 is not a multiple of tiny.kv_heads=3",
    "analyzer.min_words=300": "analyzer.min_words=300 is more than analyzer.max_words=200",
    "rollout.temperature=1e-30": "rollout.temperature=1e-30 is below 0.001",
    "evaluation.temperature=1e-30": "evaluation.temperature=1e-30 is below 0.001.*0 is greedy",
    "env.panel_sizes.dev=-1": "env.panel_sizes.dev=-1 is negative",
    "env.panel_limits.dev=-1": "env.panel_limits.dev=-1 is negative",
    "env.history_window=-1": "env.history_window",
    "model.device=banana": "model.device='banana'.*`cpu`, `cuda`",
    "threads=100000": "threads=100000.*less than or equal to 1024",
    "cluster.gpus=1000000000": "cluster.gpus",
    "cluster.gpu_memory_gb=1e300": "cluster.gpu_memory_gb",
    "stage2.updates=10000000000": "stage2.updates=10000000000 is more than 2,147,483,647",
    "env.success_reward=1e30": r"env.success_reward=1e\+30 is more than",
}
# Sound to read, compare and evaluate with; a run of them would fail after its base policy is trained, or later.
NOT_STARTED = {
    "env.panel_sizes.train=0": "the train panel has 0 tasks, fewer than stage2.tasks_per_update=8",
    "env.panel_limits.train=3": "the train panel has 3 tasks",
    "env.train_fraction=0.001": "the train panel has 2 tasks",
    "env.panel_sizes.stage1=10": "panel stage1 has 10 tasks, stage1.tasks asks for 180",
    "stage1.enabled=false": "initial=stage1 needs stage1.enabled=true",
    "model.context=64": "model.context=64 has no room for rollout.max_prompt_tokens=768",
    "analyzer.max_tokens=65": "model.context=1024 has no room for analyzer.max_prompt_tokens=960",
    "env.distractors=[100,200]": "env.distractors=100,200 must be two rising numbers, the first at least 0, the last at most 26",
    "env.receptacles=[4,5000]": "env.receptacles=4,5000",
}


@pytest.mark.parametrize("override", REFUSED)
def test_it_is_refused_when_the_configuration_is_made(override):
    with pytest.raises(ConfigError, match=REFUSED[override]):
        load_config("tiny", [override])


@pytest.mark.parametrize("override", NOT_STARTED)
@pytest.mark.parametrize("command", [["train"], ["train", "--dry-run"], ["submit"]], ids=" ".join)
def test_no_command_starts_it_or_makes_a_folder(override, command, tmp_path, capsys):
    code = main([*command, "tiny", override, "--out", str(tmp_path / "run")])
    assert code == 2
    assert NOT_STARTED[override] in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_sweep_refuses_the_cell(tmp_path, capsys):
    (tmp_path / "sweep.yaml").write_text("preset: tiny\nname: x\ngrid: {model.context: [64]}\n")
    assert main(["sweep", str(tmp_path / "sweep.yaml"), "--dry-run"]) == 2
    assert "model.context=64 has no room" in capsys.readouterr().err


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_may_start(preset):
    refuse_to_start(load_config(preset, {"method": "seed"}))


def test_every_number_has_a_bound_on_both_sides():
    """A value far outside is refused for each numeric key, whichever rule sees it."""
    default = flatten(load_config("tiny").model_dump(mode="json"))
    open_ended = []
    for key, _ in schema_fields(Config):
        value = default.get(key)
        if key in ("schema_version", "objective.advantage_ddof", "cluster.sft_zero_stage") or isinstance(value, (bool, str)):
            continue
        numbers = value if isinstance(value, list) else [value]
        if key in ("model.enable_thinking",) or not any(isinstance(n, (int, float)) for n in numbers):
            continue
        whole = all(isinstance(n, int) for n in numbers)
        for far in ((-(2**40), 2**64) if whole else (-1e40, 1e40)):
            text = repr([far] * len(numbers)) if isinstance(value, list) else repr(far)
            try:
                load_config("tiny", [f"{key}={text}"])
                open_ended.append((key, far))
            except ConfigError:
                pass
    rates = {"tiny.learning_rate", "stage1.learning_rate", "stage2.learning_rate"}  # a diverging run says so itself
    ranges = {"env.receptacles", "env.distractors"}  # the environment knows what its rooms can hold
    assert {key for key, far in open_ended} <= rates | ranges
    assert all(far > 0 for key, far in open_ended if key in rates)
