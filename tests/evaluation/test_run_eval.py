"""`rmrl eval` from files to a report: scored rewards, recorded judgements, mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmrl.config.load import compose_config
from rmrl.config.schema import EvalConfig
from rmrl.errors import ConfigError, DataError, OutputDirError, RmrlError
from rmrl.evaluation.check_eval import CheckedEval, check_eval, eval_problems
from rmrl.evaluation.eval_tables import console
from rmrl.evaluation.read_items import free_name
from rmrl.evaluation.report import Evaluation
from rmrl.evaluation.run_eval import run_eval
from rmrl.evaluation.scored import first_wrong_step, step_number
from rmrl.main_eval import main
from rmrl.main_score import main as main_score
from tests.inputs import read_lines, rule, write_lines

TRACES = Path(__file__).parents[1] / "data" / "traces"
LENGTH = rule('return None if "silent" in solution_str else float(len(solution_str))')
FEWEST = rule("return -float(len(solution_str))")
PAIRS = [
    {"id": "a", "prompt": "p", "chosen": "long enough", "rejected": "short"},
    {"id": "b", "prompt": "p", "chosen": "yes", "rejected": "no way"},
    {"id": "c", "prompt": "p", "chosen": "same", "rejected": "text"},
    {"id": "d", "prompt": "p", "chosen": "silent", "rejected": "text"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "length.py").write_text(LENGTH)
    (functions / "fewest.py").write_text(FEWEST)
    write_lines(tmp_path / "pairs.jsonl", PAIRS)
    return tmp_path


def words(folder: Path, *overrides: str) -> list[str]:
    return [
        "eval.format=pairs",
        f"data.files={folder}/pairs.jsonl",
        f"out={folder}/out",
        f"reward.functions_dir={folder}/functions",
        "reward.rule_workers=1",
        "reward.max_missing=1",
        "trainer.device=cpu",
        *overrides,
    ]


def checked(folder: Path, *overrides: str) -> CheckedEval:
    config = compose_config(words(folder, *overrides), EvalConfig)
    return check_eval(config, shipped_functions=folder)


def evaluated(folder: Path, *overrides: str) -> Evaluation:
    return run_eval(checked(folder, *overrides))


def test_rewards_are_asked_through_scoring(folder: Path) -> None:
    numbers = evaluated(folder, "reward.models=[length,fewest]").numbers
    length = numbers["judges"]["length"]
    # Won, lost, half, and one without a verdict.
    assert length["accuracy"]["value"] == (1 + 0 + 0.5 + 0) / 4
    assert (length["missing"], length["tied"]) == (1, 1)
    assert length["of_verdicts"]["value"] == 0.5
    # The sum of both is 0 for every response but the silent one.
    assert numbers["judges"]["reward"]["tied"] == 3
    assert set(numbers["judges"]) == {"length", "fewest", "reward"}
    assert numbers["controls"]["longest"]["accuracy"]["value"] == (1 + 0 + 0.5 + 1) / 4
    # Both tie on c and are opposed on a and b: observed 1/3, by chance 3 * 1/9.
    assert numbers["agreement"]["kappa"]["length"]["fewest"] == pytest.approx(0)


def test_some_items_are_drawn_by_the_seed(folder: Path) -> None:
    # random.Random(1).sample(range(4), 2) is 1 and 2, with the seed 2 it is 0 and 3
    one = checked(folder, "reward.models=[length]", "data.sample=2").items
    assert (len(one), one[0].id, one[1].id) == (2, "b", "c")
    two = checked(folder, "reward.models=[length]", "data.sample=2", "eval.seed=2").items
    assert (len(two), two[0].id, two[1].id) == (2, "a", "d")
    numbers = evaluated(folder, "reward.models=[length]", "data.sample=2").numbers
    assert numbers["items"] == 2


def test_a_report_and_a_row_per_outcome_are_written(folder: Path) -> None:
    made = evaluated(folder, "reward.models=[length]")
    out = folder / "out"
    assert json.loads((out / "report.json").read_text()) == made.numbers
    rows = read_lines(out / "outcomes.jsonl")
    assert rows[0] == {
        "judge": "length",
        "control": False,
        "id": "a",
        "subset": "all",
        "candidates": [0, 1],
        "good": [0],
        "choices": [[0]],
        "scores": [11.0, 5.0],
        "credit": 1.0,
    }
    assert rows[3]["choices"] == [None]
    assert {row["judge"] for row in rows if row["control"]} == {"random", "longest", "shortest"}
    assert (out / "reliability.png").read_bytes().startswith(b"\x89PNG")
    text = console(made.numbers)
    assert re.search(r"^length +37\.5 % ", text, flags=re.MULTILINE)
    assert "(longest)" in text


def test_traces_are_scored_beside_the_reward_of_their_environment(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What a reward reads of the turns is what it reads in `rmrl score`."""
    traces = folder / "traces.jsonl"
    traces.write_bytes((TRACES / "verifiers_episodes.jsonl").read_bytes())
    rewards = ["reward.models=[length]", "reward.specs.length.reads=tools"]
    more = ["eval.format=traces", f"data.files={traces}"]
    numbers = evaluated(folder, *more, *rewards).numbers
    # of six episodes two have failed
    assert "2 rows have no label, 'score_env.reward', and are left out" in caplog.messages
    assert numbers["items"] == 4
    assert numbers["judges"]["length"]["values"]["count"] == 4
    out = folder / "scored.jsonl"
    functions = f"reward.functions_dir={folder}/functions"
    assert main_score([f"data.files={traces}", f"out={out}", functions, *rewards]) == 0
    scores = [row["score_length"] for row in read_lines(out) if row["env.status"] == "ok"]
    rows = [row for row in read_lines(folder / "out" / "outcomes.jsonl") if not row["control"]]
    assert [row["scores"] for row in rows] == [[score] for score in scores]
    assert [row["values"] for row in rows] == [[1.1]] * 4
    assert sorted(score > 0 for score in scores) == [False, True, True, True]  # one used no tool
    failed = traces.read_text().splitlines()[1]
    traces.write_text(f"{failed}\n")
    with pytest.raises(DataError, match=r"1 rows have no label, .* data.columns.value="):
        checked(folder, *more, *rewards)


def test_the_same_command_scores_nothing_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = evaluated(folder, "reward.models=[length]")
    scored = (folder / "out" / "scored.jsonl").stat()
    again = evaluated(folder, "reward.models=[length]", "eval.seed=1")
    assert again.numbers == first.numbers
    assert (folder / "out" / "scored.jsonl").stat().st_mtime_ns == scored.st_mtime_ns
    assert any("holds the scores of this evaluation already" in line for line in caplog.messages)


def test_another_evaluation_is_not_replaced_unasked(folder: Path) -> None:
    evaluated(folder, "reward.models=[length]")
    with pytest.raises(OutputDirError, match="scores of another evaluation"):
        evaluated(folder, "reward.models=[fewest]")
    made = evaluated(folder, "reward.models=[fewest]", "overwrite=true")
    assert set(made.numbers["judges"]) == {"fewest"}


def test_recorded_verdicts_in_both_orders(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"id": "a", "judge": "j", "verdict": "A", "verdict_swapped": "B"},
        {"id": "b", "judge": "j", "verdict": "A>B", "verdict_swapped": "A>B"},
        {"id": "c", "judge": "j", "verdict": "tie", "verdict_swapped": "tie"},
        {"id": "d", "judge": "j", "verdict": 1, "verdict_swapped": None},
        {"id": "elsewhere", "judge": "j", "verdict": 1, "verdict_swapped": 1},
    ]
    recorded = write_lines(folder / "recorded.jsonl", rows)
    judge = evaluated(folder, f"eval.recorded={recorded}").numbers["judges"]["j"]
    # Right in both orders; right then wrong; tied twice; right then missing.
    assert judge["accuracy"]["value"] == (1 + 0.5 + 0.5 + 0.5) / 4
    position = judge["position"]
    assert position["consistent"] == {
        **position["consistent"],
        "value": pytest.approx(2 / 3),
        "count": 3,
    }
    assert position["first_order"]["value"] == 0.75
    assert position["second_order"]["value"] == 0.25
    assert position["both_orders"]["value"] == 0.25
    assert "1 recorded rows belong to no item and were left out" in caplog.messages
    original = evaluated(
        folder, f"eval.recorded={recorded}", "eval.swapped_names=original"
    ).numbers["judges"]["j"]
    assert original["position"]["second_order"]["value"] == 0.25  # now b, not a


def test_recorded_texts_are_read_as_a_judges_are(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {"id": "a", "text": "Both are fine, but [[A]]", "text_swapped": "I say [[B]]"},
        {"id": "b", "text": "[[B]]", "text_swapped": "nothing to say"},
        {"id": "c", "text": "[[tie]]"},
    ]
    recorded = write_lines(folder / "judge.jsonl", rows)
    made = evaluated(folder, f"eval.recorded={recorded}").numbers
    judge = made["judges"]["judge.jsonl"]
    assert judge["accuracy"]["value"] == (1 + 0 + 0.5 + 0) / 4
    assert judge["missing"] == 2
    assert any("judgements on 3 of 4 items" in line for line in caplog.messages)
    parsed = evaluated(folder, f"eval.recorded={recorded}", r"eval.parser='\[\[(?P<verdict>A)\]\]'")
    # Of both orders of a, one has a verdict.
    assert parsed.numbers["judges"]["judge.jsonl"]["accuracy"]["value"] == 0.5 / 4


def test_recorded_scores_and_texts_with_a_scale(folder: Path) -> None:
    rows = [{"id": "x", "prompt": "p", "response": "r", "value": v} for v in (2, 4)]
    rows = [{**row, "id": str(number)} for number, row in enumerate(rows)]
    write_lines(folder / "pairs.jsonl", rows)
    recorded = write_lines(
        folder / "judge.jsonl",
        [{"id": "0", "text": "Score: 2"}, {"id": "1", "text": "Score: 9"}],
    )
    judge = evaluated(
        folder, "eval.format=absolute", f"eval.recorded={recorded}", "eval.scale=[1,5]"
    ).numbers["judges"]["judge.jsonl"]
    assert (judge["values"]["count"], judge["values"]["missing"]) == (1, 1)
    assert judge["values"]["equal"]["value"] == 1


def test_a_file_of_one_json_list_is_read(folder: Path) -> None:
    (folder / "pairs.json").write_text(json.dumps(PAIRS, indent=1))
    made = checked(folder, f"data.files={folder}/pairs.json", "reward.models=[length]")
    assert [item.id for item in made.items] == ["a", "b", "c", "d"]


def test_csv_is_read(folder: Path) -> None:
    text = "id,prompt,response_a,response_b,label\n7,p,three words here,3,1\n"
    (folder / "pairs.csv").write_text(text)
    made = checked(folder, f"data.files={folder}/pairs.csv", "reward.models=[length]")
    assert (made.items[0].id, made.items[0].responses) == ("7", ("three words here", "3"))
    assert made.items[0].comparisons[0].good == {0}


def test_repeated_ids_are_numbered_where_texts_are_scored(folder: Path) -> None:
    write_lines(folder / "pairs.jsonl", [PAIRS[0], PAIRS[0], PAIRS[0]])
    made = checked(folder, "reward.models=[length]")
    assert [item.id for item in made.items] == ["a", "a#2", "a#3"]


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ([(3, 0.9), (10, 0.2), (12, 0.1)], 1),
        ([(3, 0.9), (10, 0.8), (12, 0.7)], -1),
        ([(2, 0.1)], 0),
        ([(12, 0.3)], 2),
    ],
)
def test_the_first_low_part_names_its_step(parts: list[tuple[int, float]], wrong: int) -> None:
    # "a\n\n" ends at 3, "bcdef\n\n" at 10, "gh" at 12.
    assert first_wrong_step(parts, ("a", "bcdef", "gh"), 0.5) == wrong


MISTAKES: dict[str, tuple[list[str], type[RmrlError], str]] = {
    "nothing given": (
        ["eval.format=null", "data.files=null", "out=null"],
        ConfigError,
        "4 problems",
    ),
    "format": (["eval.format=pair", "reward.models=[length]"], ConfigError, "did you mean 'pairs'"),
    "both": (
        ["eval.recorded={folder}/pairs.jsonl", "reward.models=[length]"],
        ConfigError,
        "leave one of them out",
    ),
    "a column": (
        ["eval.columns.promt=question", "reward.models=[length]"],
        ConfigError,
        "did you mean 'prompt'",
    ),
    "a recorded column": (
        ["eval.recorded={folder}/pairs.jsonl", "eval.recorded_columns.verdcit=x"],
        ConfigError,
        "did you mean 'verdict'",
    ),
    "choices": (["eval.choices=[A]", "reward.models=[length]"], ConfigError, "eval.choices"),
    "scale": (["eval.scale=[5,1]", "reward.models=[length]"], ConfigError, "eval.scale"),
    "a parser": (["eval.parser='(x)'", "reward.models=[length]"], ConfigError, "eval.parser"),
    "a row": (
        ["eval.format=llmbar", "reward.models=[length]"],
        DataError,
        "need 'label'",
    ),
    "a file": (["data.files={folder}/no.jsonl", "reward.models=[length]"], DataError, "no.jsonl"),
    "a reward": (["reward.models=[lenght]"], ConfigError, "length"),
    "no common id": (["eval.recorded={folder}/other.jsonl"], DataError, "has the id of an item"),
    "two judgements": (["eval.recorded={folder}/twice.jsonl"], DataError, "a second judgement"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_sentences_before_anything_starts(folder: Path, name: str) -> None:
    overrides, error, sentence = MISTAKES[name]
    write_lines(folder / "other.jsonl", [{"id": "z", "verdict": "A"}])
    write_lines(folder / "twice.jsonl", [{"id": "a", "verdict": "A"}] * 2)
    with pytest.raises(error, match=re.escape(sentence)):
        checked(folder, *(text.format(folder=folder) for text in overrides))
    assert not (folder / "out" / "report.json").exists()


def test_rows_that_cannot_be_read_hide_no_problem_of_the_rewards(folder: Path) -> None:
    (folder / "pairs.jsonl").write_text("{")
    with pytest.raises(ConfigError) as caught:
        checked(folder, "reward.models=[nope]")
    assert "pairs.jsonl" in str(caught.value)
    assert "nothing named 'nope'" in str(caught.value)
    with pytest.raises(DataError, match=r"pairs\.jsonl"):
        checked(folder, "reward.models=[length]")


def test_a_refused_evaluation_leaves_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nope"):
        checked(folder, "reward.models=[nope]")
    assert not (folder / "out").exists()
    (folder / "out").mkdir()
    with pytest.raises(ConfigError, match="nope"):
        checked(folder, "reward.models=[nope]")
    assert list((folder / "out").iterdir()) == []


def test_responses_to_one_prompt_are_one_group_as_in_rmrl_score(folder: Path) -> None:
    """Ranks within the group: the four items have the same prompt."""
    rewards = ["reward.models=[fewest]", "reward.specs.fewest={transform: rank}"]
    assert main(words(folder, *rewards)) == 0
    again = folder / "again.jsonl"
    keys = [
        f"data.files={folder}/out/rows.jsonl",
        f"out={again}",
        f"reward.functions_dir={folder}/functions",
        "reward.rule_workers=1",
        "trainer.device=cpu",
    ]
    assert main_score([*keys, *rewards]) == 0
    first = read_lines(folder / "out" / "scored.jsonl")[0]
    assert read_lines(again)[0]["reward"] == first["reward"]
    # Of eight responses "long enough" is the longest and "short" the fourth: ranks 0 and 3 / 7.
    assert len(set(first["reward"]) - {0.0, 0.5, 1.0}) == 1


def test_labels_that_are_all_the_same_have_no_kappa(folder: Path) -> None:
    """The better response of a pair is the first: any judge agrees as often as by chance."""
    people = evaluated(folder, "reward.models=[length]").numbers["judges"]["length"]["people"]
    assert (people["kappa"], people["alpha"]) == (None, None)


def test_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words(folder, "reward.models=[length]")) == 0
    printed = capsys.readouterr()
    assert "length" in printed.out
    assert f"wrote {folder}/out/report.json" in printed.err
    assert main(words(folder, "reward.models=[length]", "eval.fromat=pairs")) == 2
    assert "did you mean 'format'" in capsys.readouterr().err
    assert main(words(folder, "reward.models=[length]", f"data.files={folder}/none.jsonl")) == 6


def test_missing_verdicts_over_the_budget_can_fail_the_command(folder: Path) -> None:
    overrides = ("reward.models=[length]", "reward.max_missing=0.1", "over_budget=fail")
    assert main(words(folder, *overrides)) == 3
    assert (folder / "out" / "report.json").is_file()


def test_every_wrong_value_is_a_sentence_of_its_own() -> None:
    config = compose_config(["eval.format=pair", "eval.scale=[5,1]"], EvalConfig)
    problems = list(eval_problems(config))
    assert "did you mean 'pairs'" in problems[0]
    starts = [
        "eval.format: nothing named 'pair'",
        "data.files",
        "there is nothing",
        "out is",
        "eval.scale=",
    ]
    assert [problem.startswith(start) for problem, start in zip(problems, starts, strict=True)] == [
        True
    ] * 5


def test_scores_that_name_a_step() -> None:
    scores = [-1.0, 0.0, 2.0, 3.0, 0.5, None]
    assert [step_number(score, 3) for score in scores] == [-1, 0, 2, None, None, None]


def test_a_repeated_id_gets_the_first_free_number() -> None:
    assert free_name("7", {"7"}) == "7#2"
    assert free_name("7", {"7", "7#2"}) == "7#3"


def test_a_lone_surrogate_in_a_benchmark_is_scored_and_kept(folder: Path) -> None:
    row = {"id": "half \ud83d", "prompt": "p", "chosen": "longer \ud83d", "rejected": "short"}
    write_lines(folder / "pairs.jsonl", [row])
    report = evaluated(folder, "reward.models=[length]")
    assert report.numbers["judges"]["length"]["accuracy"]["value"] == 1.0
    rows = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(rows[0])["responses"] == ["longer \ud83d", "short"]
    outcomes = (folder / "out" / "outcomes.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(outcomes[0])["id"] == "half \ud83d"


def test_line_separators_within_a_text_do_not_split_its_row(folder: Path) -> None:
    rows = [{"id": "a", "prompt": "p", "chosen": "one\u2028two\x85three", "rejected": "short"}]
    write_lines(folder / "pairs.jsonl", rows)
    report = evaluated(folder, "reward.models=[length]")
    assert report.numbers["judges"]["length"]["accuracy"]["value"] == 1.0


def scored_by_others(folder: Path, *overrides: str) -> int:
    """Evaluate the scores that another program has written; their column's name holds dots."""
    rows: list[dict[str, object]] = []
    for number, pair in enumerate(PAIRS):
        scores = {"X": {"Llama-3.1-8B": [1.0, float(number)]}}
        rows.append({"key": pair["id"], "question": "p", "chosen": "a", "rejected": "b"})
        rows[-1]["rm_scores"] = scores
    write_lines(folder / "rows.jsonl", rows)
    return main(
        [
            "eval.format=pairs",
            f"eval.recorded={folder}/rows.jsonl",
            f"out={folder}/out",
            *overrides,
        ]
    )


def test_scores_are_found_in_a_column_whose_name_has_dots(folder: Path) -> None:
    column = "scores: rm_scores.X.Llama-3.1-8B"
    assert (
        scored_by_others(
            folder,
            "data.columns={id: key, prompt: question}",
            f"eval.recorded_columns={{{column}, id: key}}",
        )
        == 0
    )
    report = json.loads((folder / "out" / "report.json").read_text())
    (judge,) = report["judges"].values()
    # 1 against 0, 1, 2 and 3: won, a tie, lost, lost.
    assert judge["accuracy"]["value"] == (1 + 0.5) / 4
    assert judge["missing"] == 0


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["data.columns.id=key", "eval.recorded_columns={scores: rm_scores.X.Lama, id: key}"],
            "eval.recorded_columns.scores=rm_scores.X.Lama: no row has such a column",
        ),
        (
            ["data.columns.id=kye", "eval.recorded_columns.id=key"],
            "data.columns.id=kye: no row has such a column; did you mean 'key'?",
        ),
        (
            ["data.columns={id: key, reference: gold}", "eval.recorded_columns.id=key"],
            "data.columns.reference=gold: no row has such a column",
        ),
        (
            ["data.columns.id=key", "eval.columns.reference=gold", "eval.recorded_columns.id=key"],
            "eval.columns.reference=gold: no row has such a column",
        ),
    ],
)
def test_a_named_column_that_is_in_no_row_ends_the_evaluation(
    folder: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], sentence: str
) -> None:
    assert scored_by_others(folder, *overrides) == 6
    assert sentence in capsys.readouterr().err
