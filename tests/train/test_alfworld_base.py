"""The base recipe of preset alfworld-tiny, small and on generated rooms; on real games where SEEDLAB_DATA names them."""

import json
import warnings

import pytest

from seedlab.config.presets import load_config
from seedlab.envs import make_family
from seedlab.envs.household.family import HouseholdFamily
from seedlab.policy.load import load_policy
from seedlab.train.base import base_key, build_tiny_base, demonstration_documents
from seedlab.train.session import Session
from seedlab.train.stage1_keys import rollouts_key

SMALL = (
    "tiny.hidden=32", "tiny.layers=1", "tiny.heads=2", "tiny.kv_heads=2", "tiny.intermediate=32", "tiny.documents=40",
    "tiny.sort_window=16", "env.max_steps=8", "env.panel_sizes.train=12", "env.panel_sizes.demonstrations=12",
    "env.panel_sizes.stage1=6", "env.panel_sizes.dev=6",
)  # fmt: skip


def config(data, *more):
    return load_config("alfworld-tiny", [*SMALL, f"env.data={data}", *more])


@pytest.fixture
def made_tasks(monkeypatch):
    """Ids of all tasks that are made from here on."""
    made, make = [], HouseholdFamily.make
    monkeypatch.setattr(HouseholdFamily, "make", lambda self, task_id: made.append(task_id) or make(self, task_id))
    return made


def test_the_base_learns_from_its_own_games_in_the_recipe_s_prompts(made_tasks, tmp_path, monkeypatch):
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path))
    cfg = config("null")
    folder = build_tiny_base(cfg)
    panels = make_family(cfg.env).panels()
    assert made_tasks and set(made_tasks) <= set(panels["demonstrations"].task_ids)
    record = json.loads((folder / "pretraining.json").read_text())
    assert record["documents"] == 40 and record["last_loss"] < record["first_loss"]
    assert folder.name == base_key(cfg) and build_tiny_base(cfg) == folder
    session = Session(cfg, load_policy(str(folder), cfg.model))
    documents = demonstration_documents(cfg, session.policy, count=3, skill_fraction=0.0, noise=(0.0, 0.0), seed=0)
    text = session.policy.tokenizer.decode(documents[0].ids)
    assert "you are in middle of room ." in text and " , " not in text


def test_what_cuts_a_panel_cuts_no_demonstration(made_tasks, make_session):
    cfg = load_config("micro", ["env.train_fraction=0.1", "env.panel_limits={train: 1}", "env.panel_sizes.train=30"])
    demonstration_documents(cfg, make_session(cfg).policy, count=40, skill_fraction=0.0, noise=(0.0, 0.0), seed=0)
    assert len(set(made_tasks)) > 15  # without a panel of their own they show the whole train panel


def test_a_field_at_its_neutral_value_keeps_the_names_of_earlier_results():
    plain, sorted_ = load_config("tiny", ["tiny.sort_window=1"]), load_config("tiny", ["tiny.sort_window=2"])
    assert "sort_window" not in json.dumps(_parts(plain)) and "sort_window" in json.dumps(_parts(sorted_))
    assert base_key(plain) != base_key(sorted_)


def _parts(cfg):
    from seedlab.train.base import task_settings, tiny_settings

    return [tiny_settings(cfg), task_settings(cfg)]


def test_real_games_name_the_base_and_make_its_demonstrations(real_games, make_session, made_tasks, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 1,200 of the 3,553 train games are there
        cfg = config(real_games)
        panels = make_family(cfg.env).panels()
        link = tmp_path / "elsewhere"
        link.symlink_to(real_games)
        assert base_key(cfg) == base_key(config(link)) != base_key(config(real_games, "env.panel_seed=1"))
        assert rollouts_key(cfg) == rollouts_key(config(link))
        documents = demonstration_documents(cfg, make_session(cfg).policy, count=12, skill_fraction=0.5, noise=(0.0, 0.0), seed=0)
    assert set(made_tasks) <= set(panels["demonstrations"].task_ids)
    assert not set(made_tasks) & {i for name in ("stage1", "train", "dev", "seen", "unseen") for i in panels[name].task_ids}
    assert all(i.startswith("alfworld/train/") for i in made_tasks)
    assert len(documents) == 12 and all(sum(d.weights) > 10 for d in documents)
