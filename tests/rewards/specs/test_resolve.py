"""A name in `reward.models` becomes a spec, or a sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.calibration.digest import PARTS, differing_parts, reward_digest
from rmrl.rewards.rules.dropin import load_dropin
from rmrl.rewards.specs.build import build_spec
from rmrl.rewards.specs.names import Component
from rmrl.rewards.specs.reads import Reads
from rmrl.rewards.specs.resolve import Resolved, Surroundings, functions_dirs, resolve_rewards
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.rewards.specs.table import reward_table
from rmrl.types import Sampling
from tests.rewards.parts import JUDGE, checkpoint

RULE = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
)


@dataclasses.dataclass
class Place:
    """A folder of the user's drop-ins, the shipped one, and checkpoints."""

    root: Path

    def resolve(
        self,
        *names: str,
        specs: dict[str, Any] | None = None,
        dirs: list[Path] | None = None,
        **settings: Any,
    ) -> Resolved:
        config = RewardConfig(models=list(names), specs=specs or {}, **settings)
        around = Surroundings(
            device="cpu",
            threads=2,
            functions_dirs=dirs or [self.root / "mine", self.root / "shipped"],
        )
        return resolve_rewards(config, around)

    def one(self, name: str, **settings: Any) -> RewardSpec:
        resolved = self.resolve(name, **settings)
        assert resolved.problems == []
        (spec,) = resolved.specs
        return spec

    def problem(self, *names: str, **settings: Any) -> str:
        resolved = self.resolve(*names, **settings)
        (problem,) = resolved.problems
        return problem

    def write(self, name: str, code: str, folder: str = "mine") -> Path:
        path = self.root / folder / f"{name}.py"
        path.write_text(code, encoding="utf-8")
        return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    (tmp_path / "mine").mkdir()
    (tmp_path / "shipped").mkdir()
    monkeypatch.chdir(tmp_path)
    return Place(tmp_path)


# --- the four ways


def test_a_spec(place: Place):
    place.write("how", JUDGE)
    path = checkpoint(place.root / "m")
    given = {
        "path": str(path),
        "function": "how",
        "sampling": {"temperature": 0.7},
        "engine": {"dtype": "float32", "max_model_len": 64},
    }
    spec = place.one("mine", specs={"mine": given})
    assert (spec.name, spec.kind, spec.model_index) == ("mine", "generative", 0)
    assert spec.sampling == Sampling(max_tokens=256, temperature=0.7)
    assert spec.engine is not None
    assert (
        spec.engine.path,
        spec.engine.dtype,
        spec.engine.max_model_len,
        spec.engine.threads,
    ) == (str(path), "float32", 64, 2)
    assert spec.dropin is not None
    assert spec.dropin.path.name == "how.py"


def test_a_drop_in_with_its_own_defaults_which_a_spec_overrides_one_by_one(place: Place):
    path = checkpoint(place.root / "m")
    own = (
        f"SPEC = {{'kind': 'generative', 'path': {str(path)!r}, 'sampling': {{'max_tokens': 9,"
        " 'stop': ['.']}}\n"
    )
    place.write("judge", own + JUDGE)
    assert place.one("judge").sampling == Sampling(max_tokens=9, temperature=0.0, stop=(".",))
    changed = place.one("judge", specs={"judge": {"sampling": {"temperature": 0.5}}})
    assert changed.sampling == Sampling(max_tokens=9, temperature=0.5, stop=(".",))


def test_a_drop_in_rule(place: Place):
    place.write("fine", RULE)
    spec = place.one("fine", rule_timeout_s=3.0)
    assert (spec.kind, spec.timeout_s, spec.model_index, spec.engine) == ("rule", 3.0, -1, None)
    assert spec.function is not None
    assert spec.function.code == RULE


@pytest.mark.parametrize("attribute", ["", ":compute_score"])
def test_a_file_without_an_attribute_is_read_as_a_drop_in(place: Place, attribute: str):
    path = place.write("fine", RULE, folder=".")
    spec = place.one("mine", specs={"mine": {"function": f"{path}{attribute}"}})
    assert spec.kind == "rule"
    assert spec.function is not None
    assert (spec.function.code, spec.function.attribute) == (RULE, "compute_score")


def test_a_function_of_a_file_must_be_callable_as_a_rule(place: Place):
    path = place.write("fine", "def rate(a, b, /):\n    return 1.0\n", folder=".")
    problem = place.problem("mine", specs={"mine": {"function": f"{path}:rate"}})
    assert "needs a, b, which no rule is given" in problem


def test_a_function_of_a_package(place: Place, monkeypatch: pytest.MonkeyPatch):
    (place.root / "their_rules.py").write_text(
        "def rate(solution_str, **rest):\n    return 1\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(place.root)
    spec = place.one("their_rules:rate")
    assert (spec.name, spec.kind, str(spec.function)) == (
        "their_rules:rate",
        "rule",
        "their_rules:rate",
    )


def test_a_checkpoint(place: Place):
    path = checkpoint(place.root / "models" / "Scorer-1.5", head=True)
    spec = place.one(str(path))
    assert (spec.name, spec.kind, spec.sampling) == ("Scorer-1.5", "bradley_terry", None)
    assert spec.engine is not None
    assert (spec.engine.path, spec.engine.runner) == (str(path), "pooling")


def test_checkpoints_of_one_last_name_keep_their_paths(place: Place):
    paths = [str(checkpoint(place.root / folder / "rm", head=True)) for folder in "ab"]
    assert [spec.name for spec in place.resolve(*paths).specs] == paths


# --- problems of names


def test_an_unknown_name_names_the_nearest(place: Place):
    place.write("helpful", RULE)
    assert place.problem("helpfull").startswith(
        "reward.models: nothing named 'helpfull'; did you mean 'helpful'? known: helpful"
    )


def test_two_folders_with_one_name_are_ambiguous(place: Place):
    (place.root / "more").mkdir()
    place.write("same", RULE)
    place.write("same", RULE, "more")
    place.write("same", RULE, "shipped")
    assert place.one("same").function is not None
    dirs = [place.root / "mine", place.root / "more", place.root / "shipped"]
    assert "reward 'same' is ambiguous: " in place.problem("same", dirs=dirs)


def test_a_drop_in_and_a_checkpoint_folder_of_one_name_are_ambiguous(place: Place):
    place.write("both", RULE)
    checkpoint(place.root / "both", head=True)
    assert "write ./both for the checkpoint" in place.problem("both")
    assert place.one("./both").kind == "bradley_terry"


def test_a_missing_checkpoint(place: Place):
    assert place.problem("/nowhere/model").startswith("model path '/nowhere/model' is not a folder")
    assert "model path" in place.problem(
        "j", specs={"j": {"kind": "bradley_terry", "path": "/nowhere/model"}}
    )


def test_a_scalar_head_that_is_not_there(place: Place):
    path = checkpoint(place.root / "headless", head=False)
    assert "holds no head tensor" in place.problem(str(path))
    labels = checkpoint(place.root / "two", head=True, labels=2)
    assert "has 2 labels" in place.problem(str(labels))


def test_a_causal_checkpoint_called_scalar_has_no_head(place: Place):
    path = checkpoint(place.root / "causal")
    assert "labels" in place.problem("x", specs={"x": {"kind": "bradley_terry", "path": str(path)}})


def test_a_generative_model_without_a_drop_in(place: Place):
    path = checkpoint(place.root / "m")
    assert "write reward_functions/j.py with rm_preprocess" in place.problem(
        "j", specs={"j": {"path": str(path)}}
    )
    assert f"reward.models=[judge] reward.specs.judge.path={path}" in place.problem(str(path))


def test_a_file_as_a_name(place: Place):
    path = place.write("fine", RULE)
    assert place.problem(f"{path}:compute_score").endswith(
        f"reward.models=[fine] with reward.specs.fine.function={path}:compute_score"
    )
    assert "reward.specs.fine.function=fine.py" in place.problem("fine.py")


def test_a_package_that_cannot_be_imported(place: Place):
    assert "Importing no_such_package raised ModuleNotFoundError" in place.problem(
        "no_such_package:rate"
    )
    assert "has no 'no_such'" in place.problem("rmrl.rewards.rules.verdict:no_such")


# --- problems of specs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "/a/path",
            "reward.specs.x='/a/path': give entries such as reward.specs.x.path=<checkpoint>",
        ),
        ({"pth": "m"}, "reward.specs.x.pth: no such entry; did you mean 'path'?"),
        ({"kind": "grm", "path": "m"}, "reward.specs.x.kind=grm: not a kind"),
        (
            {"kind": "bradley_terry"},
            "reward 'x' (bradley_terry) has no checkpoint: give reward.specs.x.path=",
        ),
        ({"kind": "rule"}, "a rule needs a function"),
        ({"function": "no_such"}, "reward.specs.x.function=no_such: no no_such.py in "),
        ({"function": "/no/such.py"}, "there is no file /no/such.py"),
        (
            {"function": "fine", "path": "m"},
            "reward.specs.x.path: a rule runs no model, leave it out",
        ),
        (
            {"function": "fine", "kind": "generative", "path": "m"},
            "fine.py is a rule (compute_score); a model reward needs rm_preprocess",
        ),
        (
            {"function": "fine", "timeout_s": "long"},
            "reward.specs.x.timeout_s='long': give a number of seconds greater than 0",
        ),
        ({"function": "fine", "timeout_s": -1}, "reward.specs.x.timeout_s=-1"),
        (
            {"function": "fine", "on_missing": "zero"},
            "reward.specs.x.on_missing='zero': give mask, renormalize, fail, or {impute: <number>}",
        ),
        ({"function": "fine", "on_missing": "impute"}, "with the number typed out"),
        ({"function": "fine", "on_missing": {"impute": True}}, "with the number typed out"),
        ({"function": "fine", "on_missing": {"impute": float("nan")}}, "with the number typed out"),
        ({"function": "how", "kind": "rule"}, "a rule needs a function"),
    ],
)
def test_what_a_spec_may_not_say(place: Place, given: Any, words: str):
    place.write("fine", RULE)
    place.write("how", JUDGE)
    assert words in place.problem("x", specs={"x": given})


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            {"engine": {"dtyp": "x"}},
            "reward.specs.x.engine.dtyp: no such entry; did you mean 'dtype'?",
        ),
        ({"engine": "vllm"}, "reward.specs.x.engine='vllm': give entries"),
        (
            {"engine": {"name": "vlm"}},
            "reward.specs.x.engine.name=vlm: not a choice; did you mean 'vllm'?",
        ),
        (
            {"engine": {"residency": "always"}},
            "reward.specs.x.engine.residency=always: not a choice",
        ),
        ({"engine": {"put_away": "sleep"}}, "reward.specs.x.engine.put_away=sleep: not a choice"),
        (
            {"engine": {"tensor_parallel_size": "two"}},
            "reward.specs.x.engine.tensor_parallel_size='two': give a whole number",
        ),
        (
            {"sampling": {"temprature": 1}},
            "reward.specs.x.sampling.temprature: no such entry; did you mean 'temperature'?",
        ),
        (
            {"sampling": {"temperature": "hot"}},
            "reward.specs.x.sampling.temperature='hot': give a number",
        ),
        (
            {"sampling": {"max_tokens": 0}},
            "reward.specs.x.sampling.max_tokens=0: give at least 1 token",
        ),
        ({"sampling": {"top_p": 1.5}}, "reward.specs.x.sampling.top_p=1.5"),
        ({"sampling": {"n": 3}}, "gives 3 equal votes: give a temperature above 0"),
    ],
)
def test_what_a_model_reward_may_not_say(place: Place, entries: dict[str, Any], words: str):
    place.write("how", JUDGE)
    path = checkpoint(place.root / "m")
    assert words in place.problem(
        "x", specs={"x": {"function": "how", "path": str(path), **entries}}
    )


def test_a_scalar_model_samples_nothing(place: Place):
    path = checkpoint(place.root / "m", head=True)
    assert "a bradley_terry reward samples nothing" in place.problem(
        "x", specs={"x": {"path": str(path), "sampling": {"temperature": 1.0}}}
    )


def test_a_spec_for_a_name_that_is_not_asked_for(place: Place):
    place.write("fine", RULE)
    assert place.problem("fine", specs={"other": {"path": "m"}}).startswith(
        "reward.specs.other: not in reward.models (fine)"
    )


def test_all_problems_at_once_and_the_others_resolved(place: Place):
    place.write("fine", RULE)
    place.write("broken", "raise OSError('no disk')")
    resolved = place.resolve("fine", "nothing", "broken")
    assert [spec.name for spec in resolved.specs] == ["fine"]
    assert len(resolved.problems) == 2
    assert "OSError: no disk" in resolved.problems[1]


# --- what specs carry


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_one_stop_word_is_one_stop_word(place: Place, stop: Any):
    place.write("how", JUDGE)
    path = checkpoint(place.root / "m")
    spec = place.one(
        "x",
        specs={
            "x": {
                "function": "how",
                "path": str(path),
                "sampling": {"stop": stop, "choice": [1, 2]},
            }
        },
    )
    assert spec.sampling is not None
    assert (spec.sampling.stop, spec.sampling.choice) == (("END",), ("1", "2"))


def test_a_function_of_a_file_by_another_name(place: Place):
    path = place.write(
        "many", "def rate(solution_str):\n    return 2\n\ndef bad(answer):\n    return 1\n"
    )
    spec = place.one("x", specs={"x": {"function": f"{path}:rate"}})
    assert spec.function is not None
    assert spec.function.load()(solution_str="a") == 2
    assert "needs answer, which no rule is given" in place.problem(
        "x", specs={"x": {"function": f"{path}:bad"}}
    )
    assert "did you mean 'rate'?" in place.problem("x", specs={"x": {"function": f"{path}:ratee"}})


def test_weights_operations_and_positions(place: Place):
    place.write("fine", RULE)
    place.write("how", JUDGE)
    path = str(checkpoint(place.root / "m"))
    specs = {
        name: {"function": "how", "path": path, "on_missing": {"impute": 0}} for name in ("a", "b")
    }
    resolved = place.resolve(
        "a",
        "fine",
        "b",
        specs=specs,
        weights=[1.0, -2.0, 0.0],
        combine_ops=["add", "mul", "add"],
        on_missing="renormalize",
    )
    assert [(s.weight, s.combine_op, s.model_index) for s in resolved.specs] == [
        (1.0, "add", 0),
        (-2.0, "mul", -1),
        (0.0, "add", 1),
    ]
    assert [str(s.on_missing) for s in resolved.specs] == ["impute 0", "renormalize", "impute 0"]
    assert resolved.specs[0].on_missing == OnMissing(policy="impute", value=0.0)


def test_a_reward_that_waits_for_itself_is_refused(place: Place):
    for name in "abc":
        place.write(name, RULE)
    gates = {"a": {"gate": "b"}, "b": {"gate": "c"}, "c": {"gate": "a"}}
    problems = place.resolve("a", "b", "c", specs=gates).problems
    for name, gate in (("a", "b"), ("b", "c"), ("c", "a")):
        sentence = f"reward '{name}' waits for itself through its gates ({gate}): leave one out"
        assert sentence in problems
    del gates["c"]
    assert place.resolve("a", "b", "c", specs=gates).problems == []


def test_a_member_has_the_gates_and_sources_of_its_ensemble_and_no_weight(place: Place):
    """Own gates first, then the ensemble's, then those of reward.combine=gate, each once."""
    for name in ("fine", "format", "length"):
        place.write(name, RULE)
    place.write("how", JUDGE)
    path = str(checkpoint(place.root / "m"))
    specs = {
        "both": {"kind": "ensemble", "of": ["judge", "fine"], "gate": "length"},
        "judge": {"function": "how", "path": path, "gate": "format"},
    }
    resolved = place.resolve(
        "both",
        "format",
        "length",
        specs=specs,
        weights=[2.0, 0.0, 0.0],
        combine="gate",
        gates=["format"],
        by_source={"short": {"models": ["length"]}},
    )
    assert resolved.problems == []
    by_name = {spec.name: spec for spec in resolved.specs}
    assert {name: spec.gates for name, spec in by_name.items()} == {
        "both": ("length", "format"),
        "format": (),
        "length": ("format",),
        "judge": ("format", "length"),
        "fine": ("length", "format"),
    }
    judge = by_name["judge"]
    assert (judge.part_of, judge.weight, judge.model_index) == ("both", 0.0, 0)
    assert by_name["both"].weight == 2.0
    assert judge.sources == by_name["both"].sources
    assert judge.sources is not None
    assert dict(judge.sources) == {}  # "short" has another reward
    assert judge.sources.default == 2.0


def test_a_spec_is_complete_when_it_is_built(place: Place):
    path = str(checkpoint(place.root / "models" / "scorer", head=True))
    config = RewardConfig(combine="gate", gates=["format"])
    component = Component(
        name=path, model_name="scorer", weight=3.0, combine_op="mul", gates=("length",)
    )
    spec = build_spec(
        component,
        {"path": path, "gate": "length"},
        None,
        model_index=4,
        config=config,
        surroundings=Surroundings(device="cpu", threads=2, functions_dirs=[]),
    )
    assert (spec.name, spec.weight, spec.combine_op) == ("scorer", 3.0, "mul")
    assert (spec.model_index, spec.gates) == (4, ("length", "format"))


def test_a_rule_keeps_the_path_of_its_name_and_has_no_position(place: Place):
    place.write("fine", RULE)
    component = Component(name="mine/fine", model_name="fine")
    spec = build_spec(
        component,
        {},
        load_dropin(place.root / "mine" / "fine.py", "fine"),
        model_index=4,
        config=RewardConfig(),
        surroundings=Surroundings(device="cpu", threads=2, functions_dirs=[]),
    )
    assert (spec.name, spec.kind, spec.model_index) == ("mine/fine", "rule", -1)


def test_a_wrong_default_is_told_by_its_own_key(place: Place):
    place.write("fine", RULE)
    assert place.problem("fine", on_missing="skip").startswith(
        "reward.on_missing='skip': give mask"
    )


def test_folders_of_drop_ins(tmp_path: Path):
    ours = tmp_path / "shipped"
    ours.mkdir()

    def find(given: Any) -> list[Path]:
        return functions_dirs(given, working_dir=tmp_path, shipped_dir=ours)

    assert find(None) == [ours]
    (tmp_path / "reward_functions").mkdir()
    assert find(None) == [tmp_path / "reward_functions", ours]
    (tmp_path / "a").mkdir()
    assert find(str(tmp_path / "a")) == [tmp_path / "a", ours]
    assert find([tmp_path / "a", f"{tmp_path}/a/../a", ours]) == [tmp_path / "a" / ".." / "a", ours]
    with pytest.raises(ConfigError) as caught:
        find([tmp_path / "a", "/no/b", "/no/c"])
    assert caught.value.problems == [
        "reward.functions_dir: there is no folder /no/b",
        "reward.functions_dir: there is no folder /no/c",
    ]


# --- drop-ins that only render

RENDERS = (
    "def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):\n    return [f'{r} Right?' for"
    " r in text_responses]\n"
)


def test_score_tokens_need_no_rm_postprocess(place: Place):
    judge = checkpoint(place.root / "judge")
    place.write("right", RENDERS)
    spec = place.one(
        "right", specs={"right": {"path": str(judge), "score_tokens": {"Yes": 1, "No": 0}}}
    )
    assert (spec.kind, spec.options.score_tokens) == ("generative", {"Yes": 1, "No": 0})
    place.write(
        "sure",
        f"SPEC = {{'path': {str(judge)!r}, 'score_tokens': {{'Yes': 1, 'No': 0}}}}\n{RENDERS}",
    )
    assert place.one("sure").dropin is not None


def test_whose_verdicts_are_read_needs_rm_postprocess(place: Place):
    place.write("right", RENDERS)
    problem = place.problem(
        "right", specs={"right": {"path": str(checkpoint(place.root / "judge"))}}
    )
    assert (
        "right.py defines rm_preprocess but not rm_postprocess: a model reward needs both. Add"
        " rm_postprocess(results)" in problem
    )
    assert (
        "score_tokens={Yes:1,No:0} reads nothing and one with a parser reads by that: these need"
        " rm_preprocess alone" in problem
    )
    spec = place.one(
        "right",
        specs={"right": {"path": str(place.root / "judge"), "parser": "Score: (?P<score>[0-9]+)"}},
    )
    assert spec.dropin is not None


# --- inputs that do not fit


def test_overlong_belongs_to_one_reward(place: Place):
    path = str(checkpoint(place.root / "scorer", head=True))
    assert (
        place.one("r", specs={"r": {"path": path, "overlong": "truncate_left"}}).overlong
        == "truncate_left"
    )
    assert place.one("r", specs={"r": {"path": path}}).overlong == "missing"


def test_overlong_is_refused_where_there_is_nothing_to_cut(place: Place):
    path = str(checkpoint(place.root / "scorer", head=True))
    problem = place.problem("r", specs={"r": {"path": path, "overlong": "truncate"}})
    assert "reward.specs.r.overlong=truncate: not a choice; did you mean 'truncate_" in problem
    place.write("short", RULE)
    problem = place.problem("short", specs={"short": {"overlong": "truncate_left"}})
    assert (
        "reward.specs.short.overlong=truncate_left: a rule reward reads no text into a model of"
        " ours" in problem
    )
    server = {"url": "http://127.0.0.1:9/v1", "model": "m"}
    problem = place.problem(
        "judge", specs={"judge": {"server": server, "rubric": "short", "overlong": "truncate_left"}}
    )
    assert (
        "reward.specs.judge.overlong=truncate_left: how many tokens the server's model takes is not"
        " known here" in problem
    )


# --- a second model that keeps the best votes


def test_a_second_model_is_a_role_of_its_own(place: Place) -> None:
    judge = str(checkpoint(place.root / "judge"))
    path = str(checkpoint(place.root / "meta", head=True))
    entries: dict[str, Any] = {
        "path": judge,
        "rubric": "short",
        "sampling": {"n": 4, "temperature": 1.0},
    }
    assert list(place.one("j", specs={"j": entries}).engines) == ["main"]
    entries["meta"] = {"path": path, "keep": 2, "engine": {"max_model_len": 64}}
    spec = place.one("j", specs={"j": entries})
    assert list(spec.engines) == ["main", "meta"]
    meta = spec.engines["meta"]
    assert (meta.path, meta.runner, meta.max_model_len) == (path, "pooling", 64)
    assert spec.labels is None
    assert "judge (vllm generate" in reward_table([spec])
    assert " + meta (vllm pooling" in reward_table([spec])
    server = {"url": "http://127.0.0.1:9/v1", "model": "m"}
    remote = {key: value for key, value in entries.items() if key != "path"} | {"server": server}
    assert list(place.one("j", specs={"j": remote}).engines) == ["meta"]
    two = str(checkpoint(place.root / "two", head=True, names=("wrong", "right")))
    entries["meta"] = {"path": two, "keep": 2, "label": "right"}
    labels = place.one("j", specs={"j": entries}).labels
    assert labels is not None
    assert labels.weights == {"right": 1.0}


@pytest.mark.parametrize(
    ("meta", "sentence"),
    [
        ({"path": "judge"}, "reward.specs.j.meta.keep=0: give the number of votes"),
        ({"path": "meta", "keep": 4}, "keeps meta.keep=4 of sampling.n=4 votes"),
        ({"path": "judge", "keep": 2}, "ForCausalLM"),
        (
            {"path": "two", "keep": 2},
            "nothing says which is the score: give reward.specs.j.meta.label='wrong'",
        ),
        ({"path": "two", "keep": 2, "label": "L"}, "reward.specs.j.meta: label 'L': not a label"),
        ({"path": "meta", "keep": 2, "engine": {"name": "v"}}, "reward.specs.j.meta.engine.name=v"),
    ],
)
def test_second_models_that_cannot_be(place: Place, meta: dict[str, Any], sentence: str) -> None:
    checkpoint(place.root / "judge")
    checkpoint(place.root / "meta", head=True)
    checkpoint(place.root / "two", head=True, names=("wrong", "right"))
    judge = str(place.root / "judge")
    entries = {
        "path": judge,
        "rubric": "short",
        "sampling": {"n": 4, "temperature": 1.0},
        "meta": {**meta, "path": str(place.root / meta["path"])},
    }
    assert sentence in place.problem("j", specs={"j": entries})


def test_a_calibration_knows_how_many_votes_were_kept(place: Place) -> None:
    entries: dict[str, Any] = {
        "path": str(checkpoint(place.root / "judge")),
        "rubric": "short",
        "sampling": {"n": 4, "temperature": 1.0},
    }
    path = str(checkpoint(place.root / "meta", head=True))
    other = str(checkpoint(place.root / "other", head=True, names=("A",)))
    digests: list[dict[str, str]] = []
    for meta in ({"path": path, "keep": 2}, {"path": path, "keep": 3}, {"path": other, "keep": 2}):
        digests.append(reward_digest(place.one("j", specs={"j": {**entries, "meta": meta}})))
    assert differing_parts(digests[0], digests[1]) == [PARTS["entries"]]
    assert PARTS["model"] in differing_parts(digests[0], digests[2])


# --- the type to compute in


def test_an_engine_computes_in_its_checkpoints_own_type_unless_told_otherwise(place: Place) -> None:
    path = str(checkpoint(place.root / "scalar", head=True))  # stored in float32
    engine = place.one("q", specs={"q": {"path": path}}).engine
    assert engine is not None
    assert engine.dtype == "float32"
    reduced = place.one("q", specs={"q": {"path": path, "engine": {"dtype": "bf16"}}}).engine
    assert reduced is not None
    assert reduced.dtype == "bfloat16"
    assert reduced.key != engine.key


def test_batch_invariance_of_vllm_on_cpu_is_refused_before_anything_starts(place: Place) -> None:
    path = str(checkpoint(place.root / "scalar", head=True))
    said = place.problem("q", specs={"q": {"path": path, "engine": {"batch_invariant": True}}})
    assert said.startswith(
        "reward.specs.q.engine.batch_invariant=True: vLLM has batch-invariant kernels for NVIDIA"
        " GPUs"
    )
    engine = place.one(
        "q", specs={"q": {"path": path, "engine": {"name": "hf", "batch_invariant": True}}}
    ).engine
    assert engine is not None
    assert engine.batch_invariant


@pytest.mark.parametrize("engine", ["vllm", "hf", "sentence_transformers"])
def test_embeddings_run_on_an_engine_that_makes_them(place: Place, engine: str) -> None:
    entries = {
        "kind": "similarity",
        "path": str(checkpoint(place.root / "encoder")),
        "engine": {"name": engine},
    }
    spec = place.one("close", specs={"close": entries})
    assert [made.name for made in spec.engines.values()] == ["sentence_transformers"]


def test_an_engine_without_the_runner_is_refused_before_anything_starts(place: Place) -> None:
    entries = {
        "kind": "bradley_terry",
        "path": str(checkpoint(place.root / "scalar", head=True)),
        "engine": {"name": "sentence_transformers"},
    }
    problem = place.problem("good", specs={"good": entries})
    assert "engine.name=sentence_transformers: this engine runs embed models" in problem
    assert problem.endswith("use engine.name=vllm")


# --- what a reward reads


def test_what_a_reward_reads(place: Place):
    place.write("how", RULE)
    spec = place.one("how", specs={"how": {"reads": "answer", "unclosed": 0}})
    assert spec.reads == Reads(part="answer", unclosed=0)
    assert place.one("how").reads == Reads()


def test_a_spec_of_a_drop_in_reads_a_part(place: Place):
    place.write("how", f"SPEC = {{'reads': 'final'}}\n{RULE}")
    assert place.one("how").reads.part == "final"


def test_thinking_that_never_ends_must_not_drop_a_reward(place: Place):
    for name in "ab":
        place.write(name, RULE)
    said = "has on_missing=renormalize, so a policy could drop it by never ending its thinking"
    read = {"reads": "answer"}
    problems = place.resolve("a", "b", specs={"a": read}, on_missing="renormalize").problems
    assert problems == [
        f"reward 'a' {said}: give reward.specs.a.unclosed=<a score>, or"
        " reward.specs.a.on_missing=mask"
    ]
    fine = {"a": {"reads": "answer", "unclosed": 0}, "b": {"reads": "answer", "on_missing": "mask"}}
    assert not place.resolve("a", "b", specs=fine, on_missing="renormalize").problems
    both = {"kind": "ensemble", "of": ["a", "b"], "on_missing": "renormalize"}
    (problem,) = place.resolve("both", specs={"a": read, "both": both}).problems
    assert problem.startswith(f"reward 'both' {said}: give reward.specs.a.unclosed=")


def test_an_ensemble_reads_nothing_itself(place: Place):
    place.write("a", RULE)
    place.write("b", RULE)
    members = {"a": {"reads": "answer"}}
    ensemble = {"kind": "ensemble", "of": ["a", "b"], "reads": "answer"}
    problems = place.resolve("both", specs={"both": ensemble, **members}).problems
    assert problems[0] == (
        "reward.specs.both.reads=answer: a reward of kind ensemble reads the scores of its members;"
        " give each of them its own reads"
    )
    specs = {"both": {"kind": "ensemble", "of": ["a", "b"]}, **members}
    resolved = place.resolve("both", specs=specs)
    assert {spec.name: spec.reads.part for spec in resolved.specs} == {
        "both": "all",
        "a": "answer",
        "b": "all",
    }


def test_steps_are_parts_of_the_response(place: Place):
    path = checkpoint(place.root / "m", head=True)
    specs = {"steps": {"kind": "process", "path": str(path), "reads": "transcript"}}
    assert "the steps of a process reward are parts of the response" in place.problem(
        "steps", specs=specs
    )
    specs["steps"]["reads"] = "answer"
    assert place.one("steps", specs=specs).reads.part == "answer"
