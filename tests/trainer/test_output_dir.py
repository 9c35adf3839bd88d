"""One run per folder, one process at a time, nothing overwritten."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmrl.config import identity as config_identity
from rmrl.config.schema import Config, RewardTrainingConfig
from rmrl.errors import OutputDirError
from rmrl.trainer.output_dir import MAY_CHANGE, Claim, claim, differences, fingerprint, identify


def take(
    path: Path, config: Config | None = None, *, text: str = "a: 1\n", resume_mode: str = "auto"
) -> Claim:
    return claim(path, config=config or Config(), config_text=text, resume_mode=resume_mode)


def first_result(path: Path) -> None:
    (path / "metrics.jsonl").write_text('{"step": 1}\n')


def contents(path: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in path.iterdir() if p.name != ".lock"}


def test_new_then_resume(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "p" / "e"
    with take(out) as first:
        assert first.mode == "new"
        assert (out / "config.yaml").read_text() == "a: 1\n"
    before = contents(out)
    with take(out) as second:
        assert second.mode == "resume"
        assert second.config_fingerprint == first.config_fingerprint
    assert contents(out) == before


def test_the_record_of_a_run_has_the_command_that_started_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/bin/rmrl", "train", "reward.models=[a, b]"])
    take(tmp_path / "a").close()
    monkeypatch.setattr(sys, "argv", ["/src/rmrl/main_train.py", "trainer.seed=2"])
    take(tmp_path / "b").close()
    commands: list[str] = []
    for name in ("a", "b"):
        commands.append(json.loads((tmp_path / name / "run.json").read_text())["command"])
    assert commands[0] == "rmrl train 'reward.models=[a, b]'"
    assert commands[1] == "python -m rmrl.main_train trainer.seed=2"


def test_the_record_of_a_run_has_no_secret_of_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "reward.specs.judge.url=https://me:hunter2@host/v1"
    header = "reward.specs.judge.headers={Authorization: Bearer s3cret-value}"
    monkeypatch.setattr(sys, "argv", ["/opt/bin/rmrl", "train", url, header])
    take(tmp_path).close()
    command = json.loads((tmp_path / "run.json").read_text())["command"]
    assert "hunter2" not in command
    assert "s3cret-value" not in command
    assert command.count("<secret>") == 2


def test_keys_that_may_change_resume_and_the_new_text_is_kept_beside(tmp_path: Path) -> None:
    take(tmp_path).close()
    longer = Config()
    longer.trainer.total_training_steps = 99
    longer.trainer.logger = ["console"]
    longer.actor_rollout_ref.rollout.val_kwargs.n = 4
    with take(tmp_path, longer, text="a: 2\n") as second:
        assert second.mode == "resume"
    assert (tmp_path / "config.yaml").read_text() == "a: 1\n"
    assert (tmp_path / "config.2.yaml").read_text() == "a: 2\n"


def test_another_run_is_refused_with_the_keys_that_differ(tmp_path: Path) -> None:
    take(tmp_path).close()
    first_result(tmp_path)
    before = contents(tmp_path)
    other = Config()
    other.trainer.seed = 7
    other.reward.models = ["helpful"]
    with pytest.raises(OutputDirError) as caught:
        take(tmp_path, other, text="b: 1\n")
    message = str(caught.value)
    assert 'reward.models: [] there, ["helpful"] here' in message
    assert "trainer.seed: 1 there, 7 here" in message
    for words in (
        str(tmp_path),
        "trainer.experiment_name",
        "trainer.resume_mode=auto",
        "remove the folder",
    ):
        assert words in message
    assert contents(tmp_path) == before
    take(tmp_path).close()  # the refused claim let go of the lock


@pytest.mark.parametrize("resume_mode", ["auto", "disable"])
def test_a_start_without_any_result_does_not_bind_the_folder(
    tmp_path: Path, resume_mode: str
) -> None:
    take(tmp_path, text="a: 1\n").close()
    (tmp_path / "metrics.jsonl").touch()
    other = Config()
    other.trainer.seed = 7
    with take(tmp_path, other, text="a: 2\n", resume_mode=resume_mode) as second:
        assert second.mode == "new"
    assert (tmp_path / "config.yaml").read_text() == "a: 2\n"
    assert json.loads((tmp_path / "run.json").read_text())["config"]["trainer.seed"] == 7


@pytest.mark.parametrize(
    ("file", "text", "folder", "words"),
    [
        ("file", "", "file/run", "cannot be written"),
        ("thesis.tex", "x", ".", r"it holds thesis\.tex"),
        ("thesis.tex", "x", "thesis.tex", "is a file"),
        ("run.json", '{"config"', ".", r"run\.json cannot be read"),
    ],
)
def test_a_folder_that_is_no_run_is_not_touched(
    tmp_path: Path, file: str, text: str, folder: str, words: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(OutputDirError, match=words):
        take(tmp_path / folder)
    assert contents(tmp_path) == {file: text.encode()}


def test_disable_refuses_a_used_folder(tmp_path: Path) -> None:
    take(tmp_path, resume_mode="disable").close()
    first_result(tmp_path)
    with pytest.raises(OutputDirError, match="resume_mode=disable refuses a used folder"):
        take(tmp_path, resume_mode="disable")


def test_a_log_and_hydras_folder_do_not_make_a_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("starting")
    (tmp_path / ".hydra").mkdir()
    with take(tmp_path) as got:
        assert got.mode == "new"


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from rmrl.config.schema import Config, RewardTrainingConfig; from"
        " rmrl.trainer.output_dir import claim\nc = claim(Path(sys.argv[1]), config=Config(),"
        " config_text='a: 1\\n', resume_mode='auto')\nprint('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(
            OutputDirError, match=f"in use by another run \\(process {holder.pid} on "
        ):
            take(tmp_path)
    finally:
        holder.kill()
        holder.communicate(timeout=60)
    with take(tmp_path) as got:  # a killed run's lock is gone with it
        assert got.mode == "resume"


def test_a_closed_claim_lets_go(tmp_path: Path) -> None:
    first = take(tmp_path)
    with pytest.raises(OutputDirError, match="in use"):
        take(tmp_path)
    first.close()
    first.close()
    take(tmp_path).close()


def test_every_key_that_may_change_exists() -> None:
    def keys(node: object, head: str = "") -> set[str]:
        found = set()
        for field in dataclasses.fields(node):  # type: ignore[arg-type]
            value, key = getattr(node, field.name), head + field.name
            found |= {key} | (keys(value, key + ".") if dataclasses.is_dataclass(value) else set())
        return found

    assert keys(Config()) | keys(RewardTrainingConfig()) >= MAY_CHANGE


MAKES_THE_RUN = (
    "algorithm.",
    "data.train_",
    "data.max_prompt_length",
    "data.max_response_length",
    "data.seed",
    "data.shuffle",
    "actor_rollout_ref.model.path",
    "actor_rollout_ref.actor.optim.",
    "actor_rollout_ref.actor.clip_ratio",
    "actor_rollout_ref.actor.loss_agg_mode",
    "actor_rollout_ref.actor.policy_loss.",
    "actor_rollout_ref.actor.ppo_epochs",
    "actor_rollout_ref.actor.ppo_mini_batch_size",
    "actor_rollout_ref.rollout.n",
    "actor_rollout_ref.rollout.temperature",
    "actor_rollout_ref.rollout.top_",
    "critic.optim.",
    "critic.cliprange_value",
    "reward.models",
    "reward.weights",
    "reward.combine",
    "trainer.seed",
    "trainer.critic_warmup",
)
"""Beginnings of keys that change the numbers of a run: two values of one are two runs."""


def test_no_key_that_changes_the_numbers_may_change() -> None:
    everything = config_identity.identify(Config(), frozenset())
    kept = identify(Config())
    for start in MAKES_THE_RUN:
        keys = {key for key in everything if key.startswith(start)}
        assert keys, f"no key begins with {start}"
        assert keys <= kept.keys(), f"{sorted(keys - kept.keys())} may change"
    discounted = Config()
    discounted.algorithm.gamma = 0.5
    assert fingerprint(discounted) != fingerprint(Config())


def test_fingerprint_is_of_what_matters() -> None:
    one, two = Config(), Config()
    two.trainer.save_freq = 5
    two.actor_rollout_ref.actor.optim.betas = [0.9, 0.999]  # type: ignore[assignment]
    assert fingerprint(one) == fingerprint(two)
    two.actor_rollout_ref.actor.optim.lr = 1.0
    assert fingerprint(one) != fingerprint(two)
    files = {"train_files": Path("x"), "val_files": "y"}
    settings = {"data": files, "ray_kwargs": {"ray_init": {"num_cpus": 2}}}
    assert identify(settings) == {"data.train_files": "x"}
    assert differences({"a": 1, "trainer.save_freq": 1}, {"b": json.loads("null")}) == [
        "a: 1 there, (not set) here",
        "b: (not set) there, null here",
    ]
