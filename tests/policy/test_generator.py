"""The local generator against plain forward passes of the same weights (cases A15, A17, B10, B12, E7)."""

import asyncio

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from seedlab.config.schema import TinyConfig
from seedlab.episodes.keys import stream_key
from seedlab.policy.local import LocalGenerator, PromptTooLong, sample
from seedlab.policy.protocol import Sampling
from seedlab.policy.score import ScoreRow, score
from seedlab.policy.tiny import build_model

VOCABULARY, CONTEXT = 60, 64
PLAIN = [5, 6, 7, 8, 9, 10, 11]
SKILL = [5, 6, 7, 30, 31, 32, 8, 9, 10, 11]


def model(seed=0):
    torch.set_num_threads(1)
    tiny = TinyConfig(hidden=16, layers=2, heads=2, kv_heads=1, intermediate=24, init_std=0.4, seed=seed)
    return build_model(tiny, VOCABULARY, CONTEXT, eos=1, pad=0)


def absolute_positions():
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, initializer_range=0.4)
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def weights():
    return model()


def ask(generator, requests, *, together=True):
    """Generations of (trajectory, prompt, sampling) in order; all at once, or one after another."""

    async def one(request):
        name, prompt, sampling = request
        try:
            return await generator.generate(prompt, sampling, trajectory_id=name)
        finally:
            generator.leave()

    async def all_of(part):
        generator.expect(len(part))
        return await asyncio.gather(*(one(r) for r in part))

    if together:
        return asyncio.run(all_of(requests))
    return [asyncio.run(all_of([r]))[0] for r in requests]


def draw(key, *, temperature=1.0, max_tokens=8, stop=(1, 2, 3)):
    return Sampling(temperature, max_tokens, stream_key("draw", key), stop)


def requests_of_several_lengths():
    return [(f"t{i}", list(range(4, 5 + 3 * i)), draw(i, max_tokens=3 + 2 * i)) for i in range(5)]


def parts(generations):
    return [(g.ids, g.finish) for g in generations]


def assert_same(a, b, atol=1e-4):
    assert parts(a) == parts(b)
    for x, y in zip(a, b):
        torch.testing.assert_close(torch.tensor(x.logprobs), torch.tensor(y.logprobs), atol=atol, rtol=0)
        torch.testing.assert_close(torch.tensor(x.entropies), torch.tensor(y.entropies), atol=atol, rtol=0)


@pytest.mark.parametrize("build", [model, absolute_positions])
def test_eager_attention_generates_what_sdpa_does(build):
    def generate(attention):
        policy = build()
        policy.set_attn_implementation(attention)
        return ask(LocalGenerator(policy, context=CONTEXT), requests_of_several_lengths())

    assert_same(generate("eager"), generate("sdpa"))


def test_a_bound_on_cached_tokens_splits_a_batch_and_changes_no_answer(weights):
    requests = requests_of_several_lengths()
    widths = [len(prompt) + sampling.max_tokens for _, prompt, sampling in requests]
    sizes = []

    class Noted(LocalGenerator):
        def _run(self, part):
            sizes.append([len(r.prompt_ids) + r.sampling.max_tokens for r in part])
            return super()._run(part)

    free = ask(Noted(weights, context=CONTEXT), requests)
    assert [len(s) for s in sizes] == [5]
    sizes.clear()
    bound = 2 * sorted(widths)[-2]
    bounded = ask(Noted(weights, context=CONTEXT, max_cache_tokens=bound), requests)
    assert sum(sizes, []) == widths and len(sizes) > 1
    assert all(len(s) == 1 or len(s) * max(s) <= bound for s in sizes)
    assert_same(bounded, free)
    sizes.clear()
    assert_same(ask(Noted(weights, context=CONTEXT, max_cache_tokens=1), requests), free)  # one that is longer stands alone
    assert [len(s) for s in sizes] == [1] * 5


# ---- one draw


def test_a_token_is_drawn_by_inverting_the_cumulative_distribution():
    p = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, 1 - 2**-53], dtype=torch.float64)
    tokens, logp, entropy = sample(p.expand(8, 4), torch.ones(8), uniforms)
    assert tokens.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    torch.testing.assert_close(logp, p[tokens])
    torch.testing.assert_close(entropy, torch.full((8,), -(p.exp() * p).sum().item()))


def test_log_probs_are_those_of_the_tempered_distribution():
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    _, logp, entropy = sample(logits, torch.tensor([0.5]), torch.tensor([0.0], dtype=torch.float64))
    expected = torch.log_softmax(torch.tensor([4.0, 0.0, -2.0]), -1)
    torch.testing.assert_close(logp[0], expected[0])
    torch.testing.assert_close(entropy[0], -(expected.exp() * expected).sum())


def test_temperature_zero_takes_the_best_token_and_reports_temperature_one():
    logits = torch.tensor([[0.0, 3.0, 1.0]])
    token, logp, _ = sample(logits, torch.tensor([0.0]), torch.tensor([0.999], dtype=torch.float64))
    assert token.tolist() == [1]
    torch.testing.assert_close(logp, torch.log_softmax(logits, -1)[:, 1])


def test_a_token_without_mass_is_never_drawn():
    logits = torch.tensor([[float("-inf"), 0.0, float("-inf")]]).expand(3, 3)
    tokens, logp, entropy = sample(logits, torch.ones(3), torch.tensor([0.0, 0.5, 1 - 2**-53], dtype=torch.float64))
    assert tokens.tolist() == [1, 1, 1]
    assert logp.tolist() == [0.0, 0.0, 0.0]
    assert entropy.tolist() == [0.0, 0.0, 0.0]


# ---- against a plain forward pass


@pytest.mark.parametrize("temperature", [0.4, 1.0, 1.7])
@pytest.mark.parametrize("build", [model, absolute_positions])
def test_log_probs_and_entropies_are_those_of_the_scorer(build, temperature):
    weights = build()
    requests = [(n, p, Sampling(temperature, s.max_tokens, s.key, s.stop_ids)) for n, p, s in requests_of_several_lengths()]
    generations = ask(LocalGenerator(weights, context=CONTEXT), requests)
    rows = [
        ScoreRow(prompt + g.ids, range(len(prompt), len(prompt) + len(g.ids))) for (_, prompt, _), g in zip(requests, generations)
    ]
    for g, (logp, entropy) in zip(generations, score(weights, rows, temperature=temperature)):
        torch.testing.assert_close(torch.tensor(g.logprobs), logp, atol=1e-4, rtol=0)
        torch.testing.assert_close(torch.tensor(g.entropies), entropy, atol=1e-4, rtol=0)


def test_a_row_in_a_batch_is_the_row_alone(weights):
    requests = requests_of_several_lengths()
    together = ask(LocalGenerator(weights, context=CONTEXT), requests)
    assert_same(together, ask(LocalGenerator(weights, context=CONTEXT), requests, together=False))
    assert_same(together, ask(LocalGenerator(weights, context=CONTEXT, max_rows=2), requests))
    backwards = ask(LocalGenerator(weights, context=CONTEXT), requests[::-1])[::-1]
    assert [g.logprobs for g in together] == [g.logprobs for g in backwards], "who asked first must not matter at all"


def test_same_key_same_draw_and_other_keys_differ(weights):
    same = ask(LocalGenerator(weights, context=CONTEXT), [(f"t{i}", PLAIN, draw("k")) for i in range(3)])
    assert parts(same) == [parts(same)[0]] * 3
    other = ask(LocalGenerator(weights, context=CONTEXT), [(f"t{i}", PLAIN, draw(i)) for i in range(8)])
    assert len({tuple(g.ids) for g in other}) >= 2


# ---- how a response ends


def test_a_stop_token_ends_a_response_and_is_part_of_it(weights):
    generations = ask(LocalGenerator(weights, context=CONTEXT), [(f"t{i}", PLAIN, draw(i, max_tokens=40)) for i in range(12)])
    assert {g.finish for g in generations} == {"stop", "length"}
    for g in generations:
        assert (g.ids[-1] in (1, 2, 3)) == (g.finish == "stop")
        assert not {1, 2, 3}.intersection(g.ids[:-1])
        assert len(g.ids) == len(g.logprobs) == len(g.entropies)


def test_an_answer_is_cut_where_the_context_ends(weights):
    prompt = [5] * 18
    cut = ask(LocalGenerator(weights, context=20), [("t", prompt, draw(0, max_tokens=12, stop=()))])[0]
    assert (len(cut.ids), cut.finish) == (2, "length")


def test_a_prompt_over_the_limit_never_reaches_the_model(weights, monkeypatch):
    generator = LocalGenerator(weights, context=20)
    monkeypatch.setattr(generator, "_run", lambda part: pytest.fail("the prompt reached the model"))
    with pytest.raises(PromptTooLong, match="long-one: a prompt of 20 tokens .* context of 20"):
        ask(generator, [("long-one", [5] * 20, draw(0))])


def test_a_fault_of_the_engine_reaches_every_waiting_episode(weights, monkeypatch):
    generator = LocalGenerator(weights, context=CONTEXT)
    monkeypatch.setattr(generator, "_forward", lambda *args: (_ for _ in ()).throw(RuntimeError("device lost")))

    async def both():
        generator.expect(2)
        tasks = [generator.generate(PLAIN, draw(i), trajectory_id=f"t{i}") for i in range(2)]
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), timeout=10)

    assert [str(e) for e in asyncio.run(both())] == ["device lost", "device lost"]


def test_an_episode_that_fails_leaves_the_generator_usable(weights):
    generator = LocalGenerator(weights, context=CONTEXT)

    async def one(name, fails):
        try:
            await generator.generate(PLAIN, draw(name), trajectory_id=name)
            if fails:
                raise ZeroDivisionError("a bug of the environment")
            await generator.generate(PLAIN, draw((name, 1)), trajectory_id=name)
        finally:
            generator.leave()

    async def episodes():
        generator.expect(3)
        await asyncio.gather(*(one(f"t{i}", i == 1) for i in range(3)))

    with pytest.raises(ZeroDivisionError):
        asyncio.run(episodes())
    again = ask(generator, [("a", PLAIN, draw(0)), ("b", PLAIN, draw(1))])
    assert_same(again, ask(LocalGenerator(weights, context=CONTEXT), [("a", PLAIN, draw(0)), ("b", PLAIN, draw(1))]))


def test_images_are_refused(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    with pytest.raises(NotImplementedError, match="text only"):
        asyncio.run(generator.generate(PLAIN, draw(0), trajectory_id="t", images=("picture",)))


def test_a_batch_waits_for_every_announced_episode(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    seen = []
    run = generator._run
    generator._run = lambda part: (seen.append([r.trajectory_id for r in part]), run(part))[1]

    async def one(name, pause, turns):
        for turn in range(turns):
            for _ in range(pause):
                await asyncio.sleep(0)
            await generator.generate(PLAIN, draw((name, turn)), trajectory_id=name)
        generator.leave()

    async def episodes():
        generator.expect(3)
        await asyncio.gather(one("c", 0, 1), one("a", 7, 3), one("b", 2, 2))

    asyncio.run(episodes())
    assert seen == [["a", "b", "c"], ["a", "b"], ["a"]]


# ---- keys and values between turns


def turns(generator, skill_turn=False):
    """Three turns of two trajectories, each prompt the ids seen so far and two more; then the prompt with a skill."""
    prompts = {"a": PLAIN[:4], "b": PLAIN}
    out = []
    for turn in range(3):
        requests = [(n, p, draw((n, turn), max_tokens=4)) for n, p in prompts.items()]
        generations = ask(generator, requests)
        out += generations
        prompts = {n: p + g.ids + [20 + turn, 21] for (n, p), g in zip(prompts.items(), generations)}
    if skill_turn:
        out += ask(generator, [(n, SKILL + p[3:], draw((n, "skill"))) for n, p in prompts.items()])
        out += ask(generator, [(n, p, draw((n, "again"))) for n, p in prompts.items()])
    return out


@pytest.mark.parametrize("build", [model, absolute_positions])
def test_generation_with_the_cache_is_generation_without(build):
    weights = build()
    cached = LocalGenerator(weights, context=CONTEXT, reuse_cache=True)
    plain = LocalGenerator(weights, context=CONTEXT, reuse_cache=False)
    assert_same(turns(cached, skill_turn=True), turns(plain, skill_turn=True))
    assert cached.prompt_tokens < plain.prompt_tokens
    assert cached.sampled_tokens == plain.sampled_tokens


def test_only_what_is_new_in_a_turn_is_computed(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    first = ask(generator, [("a", PLAIN, draw(0, max_tokens=4, stop=()))])[0]
    assert generator.prompt_tokens == 7
    ask(generator, [("a", PLAIN + first.ids + [20, 21], draw(1))])
    # the last sampled token has no keys yet: it is computed with the two new ones
    assert generator.prompt_tokens == 7 + 3


def test_the_skill_context_shares_only_what_lies_before_the_skill(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    ask(generator, [("a", PLAIN, draw(0))])
    generator.prompt_tokens = 0
    with_skill = ask(generator, [("a", SKILL, draw(1))])
    assert generator.prompt_tokens == len(SKILL) - 3
    assert_same(with_skill, ask(LocalGenerator(weights, context=CONTEXT), [("a", SKILL, draw(1))]))


def test_the_very_same_prompt_again_still_computes_one_token(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    once, again = (ask(generator, [("a", PLAIN, draw(0))]) for _ in range(2))
    assert_same(once, again)
    assert generator.prompt_tokens == len(PLAIN) + 1


def test_after_a_weight_change_log_probs_are_those_of_a_fresh_model():
    live, other = model(0), model(1)
    generator = LocalGenerator(live, context=CONTEXT)
    first = ask(generator, [("a", PLAIN, draw(0))])
    live.load_state_dict(other.state_dict())
    generator.weights_version += 1
    prompt = PLAIN + first[0].ids + [20]
    after = ask(generator, [("a", prompt, draw(1))])
    assert_same(after, ask(LocalGenerator(other, context=CONTEXT), [("a", prompt, draw(1))]), atol=1e-6)
    assert (first[0].weights_version, after[0].weights_version) == (0, 1)


def test_a_released_trajectory_leaves_nothing_behind(weights):
    generator = LocalGenerator(weights, context=CONTEXT)
    ask(generator, [("a", PLAIN, draw(0)), ("b", PLAIN, draw(1))])
    generator.release("a")
    assert list(generator._store._rows) == ["b"]
    generator.release("never-there")
