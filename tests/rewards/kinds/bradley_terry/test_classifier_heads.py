"""Heads with several labels, through the whole reward layer: the numbers of transformers' own
text-classification pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.inference.reward_engine_base import RewardEngine
from rmrl.inference.reward_engines import build_engine
from rmrl.offline.show import show
from rmrl.rewards.entries.resolve import resolve_rewards
from rmrl.rewards.entries.section import Surroundings
from rmrl.rewards.kinds.bradley_terry.reward import BradleyTerryReward
from rmrl.rewards.kinds.rule.pool import RulePool
from rmrl.rewards.kinds.shared.context import KindContext
from rmrl.rewards.specs.spec import RewardSpec
from rmrl.telemetry.names import score_metrics
from rmrl.types import ScoreItem
from tests.engine_models import write_bert_scorer, write_llama_scorer
from tests.rewards.parts import always, make_scorer, rows
from tests.support import fakes

PROMPTS = ["What is 2 + 2?", "Name a colour.", "Hi"]
RESPONSES = ["It is 4.", "no idea, sorry", "Hello there, friend"]
FIVE = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")


class Direct:
    """A way to an engine in this process."""

    def __init__(self, engine: RewardEngine) -> None:
        self._engine = engine

    async def submit(
        self,
        method: str,
        requests: Sequence[Any],
        *,
        deterministic: bool,
    ) -> list[Any]:
        return getattr(self._engine, method)(requests)


def specs_of(path: str, engine: str, *given: dict[str, Any]) -> list[RewardSpec]:
    """Rewards a0, a1, ... on one checkpoint, with these entries."""
    shared = {"path": path, "engine": {"name": engine, "dtype": "float32", "max_model_len": None}}
    sections = {f"a{i}": {**shared, **entries} for i, entries in enumerate(given)}
    config = RewardConfig(models=list(sections), specs=sections)
    surroundings = Surroundings(device="cpu", threads=1, functions_dirs=[Path(path).parent])
    resolved = resolve_rewards(config, surroundings)
    if resolved.problems:
        raise ConfigError(resolved.problems)
    return resolved.specs


def scored(
    path: str, engine: str, *given: dict[str, Any]
) -> list[list[tuple[float | None, dict[str, float]]]]:
    """(score, values of the labels) of each response, for each reward on one engine."""
    from transformers import AutoTokenizer

    specs = specs_of(path, engine, *given)
    assert len({spec.engines["main"].key for spec in specs}) == 1
    loaded = build_engine(specs[0].engines["main"])
    loaded.start()
    tokenizer = AutoTokenizer.from_pretrained(path)
    context = KindContext(
        pool=RulePool(1), tokenizer=always(tokenizer), calls={"main": Direct(loaded)}
    )
    items: list[ScoreItem] = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        items.append(ScoreItem(prompt_id="", messages=[], response=response, rm_prompt=prompt))
    found: list[list[tuple[float | None, dict[str, float]]]] = []
    for spec in specs:
        results = asyncio.run(BradleyTerryReward.from_spec(spec, context).score(items))
        assert [result.status for result in results] == ["ok"] * 3
        found.append([(result.value, dict(result.extra)) for result in results])
    return found


def of_pipeline(path: str, inputs: list[Any]) -> list[dict[str, float]]:
    """Label -> score of each input, as transformers' pipeline has them without any setting."""
    from transformers import pipeline

    classify = pipeline("text-classification", model=path, device="cpu", dtype="float32")
    return [{row["label"]: row["score"] for row in classify(text, top_k=None)} for text in inputs]


def conversations() -> list[str]:
    """As the template of `tests.engine_models` writes them."""
    return [f"user: {p}\nassistant: {r}\n" for p, r in zip(PROMPTS, RESPONSES, strict=True)]


def pairs() -> list[dict[str, str]]:
    return [{"text": p, "text_pair": r} for p, r in zip(PROMPTS, RESPONSES, strict=True)]


def written(folder: Path, which: str, labels: tuple[str, ...], problem_type: str) -> str:
    if which == "llama":
        return str(write_llama_scorer(folder, labels=labels, problem_type=problem_type))
    path = write_bert_scorer(folder, labels=labels, problem_type=problem_type)
    (path / "chat_template.jinja").unlink()  # then it reads pairs
    return str(path)


@pytest.mark.parametrize("which", ["llama", "pairs"])
@pytest.mark.parametrize(
    ("labels", "problem_type"),
    [
        (("bad", "good"), ""),
        (("bad", "middling", "good"), "single_label_classification"),
        (("toxic", "insult", "threat"), "multi_label_classification"),
        (FIVE, "regression"),
    ],
)
def test_every_label_has_the_number_of_transformers_pipeline(
    which: str, labels: tuple[str, ...], problem_type: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "model", which, labels, problem_type)
    expected = of_pipeline(path, conversations() if which == "llama" else pairs())
    assert len({round(values[labels[0]], 6) for values in expected}) == 3
    one = {"label": labels[1]}
    by_label, by_sum = scored(path, "hf", one, {"label_weights": {labels[0]: 0.5, 1: -2}})
    for (score, values), wanted in zip(by_label, expected, strict=True):
        assert values == pytest.approx(wanted, abs=1e-5)
        assert list(values) == list(labels)
        assert score == values[labels[1]]
    for (score, _), wanted in zip(by_sum, expected, strict=True):
        assert score == pytest.approx(0.5 * wanted[labels[0]] - 2 * wanted[labels[1]], abs=1e-5)


def test_a_real_cross_encoder_by_its_label(ms_marco: Path) -> None:
    """One label: the pipeline's sigmoid where it is named, the raw logit where it is not."""
    path = str(ms_marco)
    expected = of_pipeline(path, pairs())
    (label,) = expected[0]
    by_label, raw, by_activation = scored(path, "hf", {"label": label}, {}, {"activation": "none"})
    assert [score for score, _ in by_label] == pytest.approx(
        [values[label] for values in expected], abs=1e-6
    )
    assert [score for score, _ in raw] == [score for score, _ in by_activation]
    assert min(score for score, _ in raw if score is not None) < 0


def test_a_drop_in_gets_all_labels_where_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "model", "llama", FIVE, "regression")
    (tmp_path / "both.py").write_text(
        "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n"
        "    return text_responses\n"
        "def rm_postprocess(results):\n"
        "    return [max(labels, key=labels.get) == 'verbosity' for labels in results]\n"
    )
    (found,) = scored(path, "hf", {"function": f"{tmp_path}/both.py"})
    expected = of_pipeline(path, RESPONSES)
    for (score, values), wanted in zip(found, expected, strict=True):
        assert values == pytest.approx(wanted, abs=1e-5)
        assert score == float(max(wanted, key=lambda name: wanted[name]) == "verbosity")


def test_several_labels_need_to_be_told_apart(tmp_path: Path) -> None:
    path = written(tmp_path / "model", "llama", ("bad", "good"), "")
    with pytest.raises(ConfigError) as caught:
        specs_of(path, "hf", {})
    assert caught.value.problems == [
        f"reward 'a0': '{path}' has 2 labels (bad, good), and nothing says which is the score: give"
        " reward.specs.a0.label='bad', or a sum:"
        " reward.specs.a0.label_weights={'bad': 1, 'good': 0.5}"
    ]
    resolved = resolve_rewards(
        RewardConfig(models=[path]),
        Surroundings(device="cpu", threads=1, functions_dirs=[tmp_path]),
    )
    (problem,) = resolved.problems
    assert (
        f"give reward.models=[scorer] reward.specs.scorer.path={path}"
        " reward.specs.scorer.label='bad'"
    ) in problem


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"label": "goood"}, r"reward\.specs\.a0: label 'goood': not a label.*'good'"),
        ({"label": 2}, "numbered 0 to 1"),
        ({"label_weights": {"good": "x"}}, "each a finite number"),
        ({"label": "good", "activation": "tanh"}, "activation='tanh': not a choice"),
    ],
)
def test_wrong_entries_are_told_before_anything_starts(
    entries: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "model", "llama", ("bad", "good"), "")
    with pytest.raises(ConfigError, match=words):
        specs_of(path, "hf", entries)


async def test_labels_from_the_engine_to_the_metrics(tmp_path: Path, tokenizer: Any) -> None:
    """Through scorer, broker and cache: 3 outputs of the fake engine are 0.5, -0.5, 0.5."""
    path = written(tmp_path / "model", "llama", ("help", "harm", "style"), "regression")
    kwargs = {"labels": 3, "value": 0.5}
    entries = {"label_weights": {"help": 1, "harm": 3}, "engine": {"name": fakes.REWARD_ENGINE}}
    entries["engine"] |= {"kwargs": kwargs, "dtype": "float32"}
    scorer = make_scorer(specs_of(path, fakes.REWARD_ENGINE, entries), tokenizer)
    texts = rows("a", "bb")
    try:
        batch = await scorer.score(texts)
        shown = await show(scorer, texts)
    finally:
        await scorer.close()
    labels = "labels: help + 3 x harm of 3 labels (help, harm, style), activation none"
    assert shown.count(labels) == 2
    # 1 * 0.5 + 3 * -0.5
    assert batch.rewards_B.tolist() == [-1.0, -1.0]
    (result, _) = batch.scores.results[0]
    assert result.extra == {"help": 0.5, "harm": -0.5, "style": 0.5}
    assert result.raw_text == "help 0.5, harm -0.5, style 0.5"
    metrics = score_metrics(batch.scores, batch, [1, 2])
    assert metrics["score/a0/extra_harm"] == -0.5
