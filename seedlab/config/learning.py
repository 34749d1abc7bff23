"""The sections of a configuration that say how a policy learns: Stage 1, the objective, Stage 2."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seedlab.config.section import Decay, Section

WRITTEN_SKILLS = ("own", "shuffled", "mate", "sibling", "scripted", "external")  # objective.skill_from that ask an analyzer in every update
OWN_SKILLS = ("own", "shuffled", "mate", "sibling")  # objective.skill_from whose texts the policy's own snapshot writes


class Stage1Config(Section):
    """Hindsight-skill SFT (paper section 2)."""

    seed: int = Field(0, ge=0, description="seed of rollouts and shuffling in Stage 1; shared by every run of a comparison")
    enabled: bool = Field(True, description="False leaves Stage 1 out: no labels, no SFT")
    tasks: int = Field(180, gt=0, description="M: tasks of the stage1 panel that are rolled out")
    rollouts_per_task: int = Field(8, gt=0, description="K0: trajectories per task")
    rollout_temperature: float = Field(1.0, gt=0, description="sampling temperature of these trajectories")
    epochs: int = Field(3, gt=0, description="passes over the accepted pairs")
    learning_rate: float = Field(1.5e-3, gt=0, description="peak learning rate; cosine after the warm-up")
    min_learning_rate_ratio: float = Field(0.1, ge=0, le=1, description="last learning rate as a share of the peak")
    batch_size: int = Field(32, gt=0, description="sequences per optimizer step")
    warmup_ratio: float = Field(0.1, ge=0, le=1, description="share of the steps with a rising learning rate")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay")
    betas: tuple[Decay, Decay] = Field((0.9, 0.95), description="AdamW's moment decays")
    grad_clip: float = Field(1.0, gt=0, description="largest gradient norm")
    held_out: float = Field(0.1, ge=0, lt=1, description="share of the pairs kept for the held-out loss")
    transcript_weight: float = Field(0.0, ge=0, description="loss weight of the transcript's own action tokens; 0 in the paper")
    replay_ratio: float = Field(0.0, ge=0, description="replay documents per trajectory; 0 in the paper")
    replay_skill_fraction: float = Field(0.7, ge=0, le=1, description="share of the replay documents that carry a skill")


class ObjectiveConfig(Section):
    """`rl_coef L_rl + opd_coef L_opd + kl_coef KL - entropy_coef H` with its switches."""

    rl_coef: float = Field(1.0, ge=0, description="weight of the clipped policy loss; 0 is distillation alone")
    opd_coef: float = Field(0.01, ge=0, description="lambda_opd")
    beta: float = Field(5.0, ge=0, description="beta_opd of the gate sigma(beta * delta)")
    kl_coef: float = Field(0.01, ge=0, description="beta_KL")
    entropy_coef: float = Field(0.0, ge=0, description="weight of the entropy bonus")
    clip_low: float = Field(0.2, ge=0, le=1, description="the ratio is clipped below at 1 - clip_low")
    clip_high: float = Field(0.2, ge=0, description="the ratio is clipped above at 1 + clip_high")
    dual_clip: float | None = Field(3.0, gt=1, description="lower bound c of the dual clip for negative advantages; None is off")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="estimator of the KL term; in the loss k3 has the gradient of KL(ref, policy), k2 that of KL(policy, ref)")
    reference: Literal["initial", "old", "none"] = Field("initial", description="pi_ref: the checkpoint Stage 2 starts from, theta_old, or no KL")
    ratio: Literal["token", "sequence"] = Field("token", description="probability ratio of the policy loss: each token's own, or the geometric mean over its row (GSPO), which wants a far smaller clip_low and clip_high")
    advantage: Literal["grpo", "rloo", "gigpo"] = Field("grpo", description="group-relative baseline: the group's mean, the mean of the others, or the group's mean plus a second advantage over the group's steps that share their observation")
    step_weight: float = Field(1.0, ge=0, description="advantage=gigpo: weight of the step advantage")
    step_discount: float = Field(0.95, ge=0, le=1, description="advantage=gigpo: discount per step of a step's return")
    advantage_scale: Literal["std", "mean"] = Field("std", description="`mean` only subtracts the group mean")
    advantage_ddof: Literal[0, 1] = Field(0, description="0 is the population standard deviation, 1 the sample one")
    advantage_eps: float = Field(1e-6, ge=0, description="added to the standard deviation")
    group_statistics: Literal["trajectories", "steps"] = Field("trajectories", description="mean and deviation over the trajectories of a group, or over all its step samples")
    group_of_one: Literal["zero", "identity"] = Field("zero", description="`identity` is mean 0, std 1, as in the authors' code")
    invalid_penalty: float = Field(0.0, ge=0, description="taken off the return per step whose response lacks the required form (an inadmissible command has it); with group_statistics=steps, off that step's own sample")
    aggregation: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "fixed"] = Field("token-mean", description="how token losses become one number, over the whole minibatch")
    fixed_denominator: float = Field(4096.0, gt=0, description="tokens; used by aggregation=fixed only")
    teacher: Literal["live", "once"] = Field("live", description="score the skill context under live theta, or once per update under theta_old")
    skill_from: Literal["own", "static", "scripted", "external", "shuffled", "mate", "sibling", "empty"] = Field("own", description="whose skill the teacher reads: its own hindsight skill, a library's, the scripted analyzer's, that of the external analyzer (external.kind), another trajectory's, that of another attempt at the same task or at another task of its type, or none")
    analyzer_snapshot: Literal["synchronised", "initial"] = Field("synchronised", description="weights that write skills: the rollout policy's, or those Stage 2 started from")
    refresh_every: int = Field(1, ge=1, description="updates between refreshes of the analyzer snapshot")
    where: Literal["all", "tied", "successes", "failures"] = Field("all", description="trajectories that the distillation term applies to")
    opd_form: Literal["gate", "log_ratio", "ratio_k3"] = Field(
        "gate",
        description="form of the distillation term: the gated likelihood of SEED; the detached log-ratio of teacher and student as a token's advantage, which descends KL(student, teacher); or k3 of that KL times the probability ratio (Skill-SD). The last two have no gate, and beta no meaning",
    )
    schedule: Literal["constant", "ramp", "decay", "stop"] = Field("constant", description="opd_coef over the updates: constant, rising to its value over schedule_updates, falling to 0 over them, or 0 from that update on")
    schedule_updates: int = Field(100, ge=1, description="updates of a schedule that is not constant")
    support: Literal["sampled", "topk", "full"] = Field("sampled", description="what the gated term supervises in each context: the sampled token, the student's support_k likeliest tokens and the rest as one, or the whole vocabulary; for own skills the last two are another, biased target")
    support_k: int = Field(32, ge=1, description="support=topk: tokens that are supervised apart")
    average_skills: int = Field(1, ge=1, le=64, description="skills whose gates are averaged: further ones of the trajectory's neighbours (skill_from=mate or sibling), or sampled anew from its own analyzer (skill_from=own, analyzer.temperature above 0); each is one more scoring of every token")
    baseline: Literal["none", "mean", "context"] = Field("none", description="what is subtracted from the gate: nothing; the mean gate of the minibatch's other trajectories, less those whose skill was written from this one; or the expected gate in the token's own context under a group mate's skill (one more scoring of both contexts)")
    skill_advantage: Literal["none", "scaled", "added"] = Field("none", description="what the teacher does to a token's advantage: nothing, scale its size (RLSD), or add to it (OPID)")
    scale_share: float = Field(0.5, ge=0, le=1, description="skill_advantage=scaled: share of the teacher's weight at the first update")
    scale_updates: int = Field(100, ge=1, description="skill_advantage=scaled: updates over which that share falls linearly to 0")
    episode_coef: float = Field(0.001, ge=0, description="skill_advantage=added: weight of l_t - l_o where the teacher reads the episode's skill")
    step_coef: float = Field(0.001, ge=0, description="skill_advantage=added: the same where it reads the skill of the token's own step")
    critical_steps: int = Field(0, ge=0, le=1000, description="steps of a trajectory, at most, for which the analyzer writes skills of their own, which replace the episode's there; 0 asks for none (opid 5, on Search 2)")
    scale_low: float = Field(0.8, gt=0, le=1, description="skill_advantage=scaled: least weight of an advantage")
    scale_high: float = Field(1.2, ge=1, description="skill_advantage=scaled: largest weight of an advantage")

    @property
    def uses_teacher(self) -> bool:
        """Whether sampled tokens are scored once more behind a skill."""
        return self.opd_coef != 0 or self.skill_advantage != "none"

    @property
    def writes_skills(self) -> bool:
        """Whether an analyzer reads this run's trajectories."""
        return self.uses_teacher and self.skill_from in WRITTEN_SKILLS

    @property
    def policy_writes_skills(self) -> bool:
        """Whether the policy's own snapshot writes this run's skills."""
        return self.uses_teacher and self.skill_from in OWN_SKILLS

    @model_validator(mode="after")
    def _k1_has_no_gradient(self):
        if self.kl_estimator == "k1" and self.kl_coef and self.reference != "none":
            raise ValueError(
                "objective.kl_estimator=k1 has zero expected gradient inside the loss; use k3 (the default) or k2, "
                "or set objective.kl_coef=0"
            )
        return self


class Stage2Config(Section):
    """Self-evolving on-policy distillation (paper section 3)."""

    updates: int = Field(24, ge=0, description="rollout batches, each followed by its optimizer steps")
    tasks_per_update: int = Field(8, gt=0, description="tasks of one rollout batch")
    group_size: int = Field(8, gt=0, description="N: trajectories per task")
    minibatches: int | None = Field(2, ge=1, description="optimizer steps per update; exactly one of this and minibatch_rows")
    minibatch_rows: int | None = Field(None, ge=1, description="rows per minibatch: step samples or trajectories, by layout")
    micro_batch_tokens: int = Field(16384, gt=0, description="padded tokens of one forward pass; changes memory, never the gradient")
    learning_rate: float = Field(3e-4, gt=0, description="AdamW's constant learning rate")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay")
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="AdamW's moment decays")
    grad_clip: float = Field(1.0, gt=0, description="largest gradient norm")
    checkpoint_every: int = Field(8, gt=0, description="updates between checkpoints")
    keep_checkpoints: int = Field(2, gt=0, description="newest checkpoints that stay on disk")
    log_gradient_terms_every: int = Field(4, ge=0, description="updates between measurements of each term's gradient norm; 0 is never")

    @model_validator(mode="after")
    def _one_minibatch_rule(self):
        if (self.minibatches is None) == (self.minibatch_rows is None):
            raise ValueError("set exactly one of stage2.minibatches and stage2.minibatch_rows")
        return self
