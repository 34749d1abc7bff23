"""Small random policies and sessions for tests that need real weights; nothing heavy is imported before it is used."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """No test may wait for a hub, or touch the cache of whoever runs the tests."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("SEEDLAB_CACHE", str(cache))
        yield cache


@pytest.fixture(scope="session")
def micro():
    """micro(*overrides): the configuration of preset micro with dotted overrides, of which later ones win."""
    from seedlab.config.preset_values import merge
    from seedlab.config.presets import load_config, parse_overrides

    return lambda *overrides: load_config("micro", merge(*(parse_overrides([text]) for text in overrides)))


@pytest.fixture(scope="session")
def vocabulary(micro):
    """The tokenizer that the tiny recipe builds for generated rooms."""
    from seedlab.envs import make_family
    from seedlab.episodes.prompts import COMPACT_WORDS
    from seedlab.policy.tiny_tokenizer import build_tokenizer

    cfg = micro()
    return build_tokenizer([*make_family(cfg.env).vocabulary(), *COMPACT_WORDS], cfg.model.context)


@pytest.fixture(scope="session")
def random_policy(vocabulary):
    """random_policy(cfg, seed): untrained weights in which about half of the responses end by themselves."""
    import torch

    from seedlab.policy.load import wrap
    from seedlab.policy.tiny import build_model

    torch.set_num_threads(1)

    def build(cfg, seed=0, *, trainable=False):
        tiny = cfg.tiny.model_copy(update={"seed": seed})
        end = vocabulary.eos_token_id
        model = build_model(tiny, len(vocabulary), cfg.model.context, eos=end, pad=vocabulary.pad_token_id)
        with torch.no_grad():
            model.get_input_embeddings().weight[end] *= 8
        return wrap(model, vocabulary, cfg.model, trainable=trainable)

    return build


@pytest.fixture(scope="session")
def make_session(random_policy):
    """make_session(cfg, seed): a session whose policy is random."""
    from seedlab.train.session import Session

    return lambda cfg, seed=0: Session(cfg, random_policy(cfg, seed, trainable=True))


@pytest.fixture(scope="session")
def rollout():
    """rollout(session, tasks, group): training episodes of update 0 on the first tasks of `train`."""
    from seedlab.train.tasks import group_episodes

    def play(session, tasks=2, group=2, *, update=0, seed=0, **options):
        chosen = list(session.panels["train"].task_ids[:tasks])
        temperature = session.cfg.rollout.temperature
        return session.play(
            group_episodes(chosen, group), phase="u", update=update, seed=seed, temperature=temperature, **options
        )

    return play


@pytest.fixture(scope="session")
def finished(tmp_path_factory, own_cache, micro):
    """An undisturbed run of every phase, in which every term learns; read only."""
    from seedlab.train.run import train

    return train(micro(), tmp_path_factory.mktemp("finished") / "run", results=own_cache.parent / "results.jsonl")


@pytest.fixture(scope="session")
def real_games(tmp_path_factory):
    """The real games that SEEDLAB_DATA holds, unpacked where they are packed."""
    import tarfile
    from pathlib import Path

    if "SEEDLAB_DATA" not in os.environ:
        pytest.skip("SEEDLAB_DATA is not set: wanted its folder alfworld/ with real games")
    folder = Path(os.environ["SEEDLAB_DATA"]) / "alfworld"
    packed = folder / "games.tar.xz"
    if not packed.is_file():
        return folder
    target = tmp_path_factory.mktemp("games")
    with tarfile.open(packed) as archive:
        archive.extractall(target, filter="data")
    return target


@pytest.fixture
def seedlab(capsys):
    """seedlab(*argv): exit code, stdout, stderr."""
    from seedlab.cli.main import main

    def run(*argv):
        capsys.readouterr()
        code = main([str(a) for a in argv])
        return code, *capsys.readouterr()

    return run
