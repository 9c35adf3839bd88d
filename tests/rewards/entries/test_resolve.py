"""A name in `reward.models` becomes a spec, or a sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from rmrl.config.schema import RewardConfig
from rmrl.errors import ConfigError
from rmrl.rewards.calibration.digest import PARTS, differing_parts, reward_digest
from rmrl.rewards.dropins.dropin import load_dropin
from rmrl.rewards.entries.build import build_spec
from rmrl.rewards.entries.listing import reward_table
from rmrl.rewards.entries.names import Component
from rmrl.rewards.entries.resolve import Resolved, Surroundings, functions_dirs, resolve_rewards
from rmrl.rewards.reads.setting import Reads
from rmrl.rewards.specs.spec import OnMissing, RewardSpec
from rmrl.types import Sampling
from tests.rewards.parts import JUDGE, checkpoint

RULE = (
    "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1.0\n"
)


RENDERS = """
def rm_preprocess(text_prompts, text_responses, tgt_tokenizer):
    return [f"{response} Right?" for response in text_responses]
"""


@dataclasses.dataclass
class Place:
    """A folder to work in, with drop-ins (a user's and shipped ones) and checkpoints."""

    root: Path

    def resolve(
        self,
        *names: str,
        specs: dict[str, Any] | None = None,
        dirs: tuple[str, ...] = ("mine", "shipped"),
        device: str = "cpu",
        **settings: Any,
    ) -> Resolved:
        config = RewardConfig(models=list(names), specs=specs or {}, **settings)
        folders = list(map(self.root.joinpath, dirs))
        surroundings = Surroundings(device=device, threads=2, functions_dirs=folders)
        return resolve_rewards(config, surroundings)

    def one(self, name: str, **settings: Any) -> RewardSpec:
        resolved = self.resolve(name, **settings)
        assert resolved.problems == []
        (spec,) = resolved.specs
        return spec

    def x(self, **entries: Any) -> RewardSpec:
        return self.one("x", specs={"x": entries})

    def problem(self, *names: str, **settings: Any) -> str:
        (problem,) = self.resolve(*names, **settings).problems
        return problem

    def write(self, name: str, code: str, folder: str = "mine") -> Path:
        path = self.root / folder / f"{name}.py"
        path.write_text(code, encoding="utf-8")
        return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    for folder in ("mine", "shipped", "more"):
        (tmp_path / folder).mkdir()
    for name in ("helpful", "fine", "format", "length"):
        place.write(name, RULE)
    place.write("how", JUDGE)
    place.write("right", RENDERS)
    place.write("rate", "def rate(a, b, /):\n    return 1.0\n", folder=".")
    checkpoint(tmp_path / "judge")
    checkpoint(tmp_path / "scorer", head=True)
    checkpoint(tmp_path / "headless", head=False)
    checkpoint(tmp_path / "two", head=True, names=("wrong", "right"))
    monkeypatch.chdir(tmp_path)
    return place


# --- the four ways


def test_a_spec(place: Place):
    spec = place.x(
        path="judge",
        function="how",
        sampling={"temperature": 0.7},
        engine={"dtype": "float32", "max_model_len": 64},
    )
    assert (spec.name, spec.kind, spec.model_index) == ("x", "generative", 0)
    assert spec.sampling == Sampling(max_tokens=256, temperature=0.7)
    engine = spec.engine
    assert engine is not None
    assert (engine.path, engine.dtype, engine.max_model_len) == ("judge", "float32", 64)
    assert engine.threads == 2
    assert spec.dropin is not None
    assert spec.dropin.path.name == "how.py"


@pytest.mark.parametrize(("device", "typed", "expected"), [
    ("cpu", {}, 128), ("cuda", {}, 256), ("cuda", {"max_num_seqs": 7}, 7)
])  # fmt: skip
def test_requests_in_flight_follow_the_device_where_they_are_not_typed(
    place: Place, device: str, typed: dict[str, int], expected: int
):
    entry = {"path": "judge", "function": "how", "engine": typed}
    spec = place.one("x", specs={"x": entry}, device=device)
    assert spec.engine is not None
    assert spec.engine.max_num_seqs == expected


def test_a_drop_in_with_its_own_defaults_which_a_spec_overrides_one_by_one(place: Place):
    sampling = {"max_tokens": 9, "stop": ["."]}
    defaults = {"kind": "generative", "path": "judge", "sampling": sampling}
    place.write("x", f"SPEC = {defaults!r}\n{JUDGE}")
    assert place.one("x").sampling == Sampling(max_tokens=9, temperature=0.0, stop=(".",))
    changed = place.x(sampling={"temperature": 0.5})
    assert changed.sampling == Sampling(max_tokens=9, temperature=0.5, stop=(".",))


def test_a_drop_in_rule(place: Place):
    spec = place.one("fine", rule_timeout_s=45.0)
    assert (spec.kind, spec.timeout_s, spec.model_index, spec.engine) == ("rule", 45.0, -1, None)
    assert spec.function is not None
    assert spec.function.code == RULE


@pytest.mark.parametrize("attribute", ["", ":compute_score"])
def test_a_file_without_an_attribute_is_read_as_a_drop_in(place: Place, attribute: str):
    path = place.write("fine", RULE, folder=".")
    spec = place.x(function=f"{path}{attribute}")
    assert spec.kind == "rule"
    assert spec.function is not None
    assert (spec.function.code, spec.function.attribute) == (RULE, "compute_score")


def test_a_function_of_a_package(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.write("their_rules", "def rate(solution_str, **rest):\n    return 1\n", folder=".")
    monkeypatch.syspath_prepend(place.root)
    spec = place.one("their_rules:rate")
    assert (spec.name, spec.kind) == ("their_rules:rate", "rule")
    assert str(spec.function) == "their_rules:rate"


def test_a_function_of_a_file_by_another_name(place: Place):
    place.write("many", "def rate(solution_str):\n    return 2\n", folder=".")
    spec = place.x(function="./many.py:rate")
    assert spec.function is not None
    assert spec.function.load()(solution_str="a") == 2


def test_a_checkpoint(place: Place):
    path = str(checkpoint(place.root / "models" / "Scorer-1.5", head=True))
    spec = place.one(path)
    assert (spec.name, spec.kind, spec.sampling) == ("Scorer-1.5", "bradley_terry", None)
    assert spec.engine is not None
    assert (spec.engine.path, spec.engine.runner) == (path, "pooling")


def test_checkpoints_of_one_last_name_keep_their_paths(place: Place):
    paths = [str(checkpoint(place.root / folder / "rm", head=True)) for folder in "ab"]
    assert [spec.name for spec in place.resolve(*paths).specs] == paths


# --- problems of names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "helpfull",
            "reward.models: nothing named 'helpfull'; did you mean 'helpful'? known: fine, ",
        ),
        ("/nowhere/model", "reward.models: '/nowhere/model' is not a folder"),
        ("./headless", "holds no head tensor"),
        ("./two", "has 2 labels"),
        ("./judge", "reward.models=[judge] reward.specs.judge.path=./judge"),
        ("mine/fine.py:compute_score", "reward.specs.mine.function=mine/fine.py:compute_score"),
        ("fine.py", "reward.specs.mine.function=fine.py"),
        ("no_such_package:rate", "Importing no_such_package raised ModuleNotFoundError"),
        ("rmrl.rewards.dropins.verdict:no_such", "has no 'no_such'"),
    ],
)
def test_a_name_that_cannot_be_resolved(place: Place, name: str, words: str):
    assert words in place.problem(name)


def test_two_folders_with_one_name_are_ambiguous(place: Place):
    for folder in ("mine", "more", "shipped"):
        place.write("same", RULE, folder)
    assert place.one("same").function is not None
    problem = place.problem("same", dirs=("mine", "more", "shipped"))
    assert "reward 'same' is ambiguous: " in problem


def test_a_drop_in_and_a_checkpoint_folder_of_one_name_are_ambiguous(place: Place):
    place.write("scorer", RULE)
    assert "write ./scorer for the checkpoint" in place.problem("scorer")
    assert place.one("./scorer").kind == "bradley_terry"


# --- problems of specs

JUDGING = {"function": "how", "path": "judge"}
VOTING = {"path": "judge", "rubric": "short", "sampling": {"n": 4, "temperature": 1.0}}
SCORER = {"path": "scorer"}
SERVER = {"url": "http://127.0.0.1:9/v1", "model": "m"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("/a/path", "x='/a/path': give entries such as reward.specs.x.path=<checkpoint>"),
        ({"pth": "m"}, "x.pth: no such entry; did you mean 'path'?"),
        ({"kind": "grm", "path": "m"}, "x.kind: nothing named 'grm'"),
        ({"kind": "bradley_terry"}, "'x' (bradley_terry) has no checkpoint: give reward.specs.x."),
        ({"kind": "bradley_terry", "path": "/nowhere/model"}, "x.path: '/nowhere/model' is not"),
        ({"kind": "bradley_terry", "path": "judge"}, "labels"),
        ({"path": "judge"}, "write reward_functions/x.py with rm_preprocess"),
        ({"kind": "rule"}, "a rule needs a function"),
        ({"function": "no_such"}, "x.function=no_such: no no_such.py in "),
        ({"function": "/no/such.py"}, "there is no file /no/such.py"),
        ({"function": "./rate.py:rate"}, "needs a, b, which no rule is given"),
        ({"function": "./rate.py:ratee"}, "did you mean 'rate'?"),
        ({"function": "fine", "path": "m"}, "x.path: a rule runs no model, leave it out"),
        (
            {"function": "fine", "kind": "generative", "path": "m"},
            "fine.py is a rule (compute_score); a model reward needs rm_preprocess",
        ),
        ({"function": "fine", "timeout_s": "long"}, "x.timeout_s='long': give a number of seconds"),
        ({"function": "fine", "timeout_s": -1}, "x.timeout_s=-1"),
        (
            {"function": "fine", "on_missing": "zero"},
            "x.on_missing='zero': give mask, renormalize, fail, or {impute: <number>}",
        ),
        ({"function": "fine", "on_missing": "impute"}, "with the number typed out"),
        ({"function": "fine", "on_missing": {"impute": True}}, "with the number typed out"),
        ({"function": "fine", "on_missing": {"impute": float("nan")}}, "with the number typed out"),
        ({"function": "how", "kind": "rule"}, "a rule needs a function"),
        (
            {**JUDGING, "engine": {"dtyp": "x"}},
            "x.engine.dtyp: no such entry; did you mean 'dtype'?",
        ),
        ({**JUDGING, "engine": "vllm"}, "x.engine='vllm': give entries"),
        (
            {**JUDGING, "engine": {"name": "vlm"}},
            "x.engine.name=vlm: nothing named 'vlm'; did you mean 'vllm'?",
        ),
        ({**JUDGING, "engine": {"residency": "always"}}, "residency='always': not a choice"),
        ({**JUDGING, "engine": {"put_away": "sleep"}}, "x.engine.put_away='sleep': not"),
        ({**JUDGING, "engine": {"max_num_seqs": 0}}, "x.engine.max_num_seqs=0: must be greater"),
        (
            {**JUDGING, "engine": {"tensor_parallel_size": "two"}},
            "x.engine.tensor_parallel_size='two': give a whole number",
        ),
        (
            {**JUDGING, "sampling": {"temprature": 1}},
            "x.sampling.temprature: no such entry; did you mean 'temperature'?",
        ),
        (
            {**JUDGING, "sampling": {"temperature": "hot"}},
            "x.sampling.temperature='hot': give a finite number",
        ),
        (
            {**JUDGING, "sampling": {"max_tokens": 0}},
            "x.sampling.max_tokens=0: give at least 1 token",
        ),
        ({**JUDGING, "sampling": {"top_p": 1.5}}, "x.sampling.top_p=1.5"),
        ({**JUDGING, "sampling": {"n": 3}}, "gives 3 equal votes: give a temperature above 0"),
        ({**SCORER, "sampling": {"temperature": 1.0}}, "a bradley_terry reward samples nothing"),
        (
            {**SCORER, "engine": {"batch_invariant": True}},
            "x.engine.batch_invariant=True: vLLM has batch-invariant kernels for NVIDIA",
        ),
        (
            {**SCORER, "overlong": "truncate"},
            "x.overlong=truncate: not a choice; did you mean 'truncate_",
        ),
        (
            {"function": "fine", "overlong": "truncate_left"},
            "x.overlong=truncate_left: a rule reward reads no text into a model of ours",
        ),
        (
            {"server": SERVER, "rubric": "short", "overlong": "truncate_left"},
            "x.overlong=truncate_left: how many tokens the server's model takes is not known here",
        ),
        (
            {"kind": "bradley_terry", **SCORER, "engine": {"name": "sentence_transformers"}},
            "engine.name=sentence_transformers: this engine runs embed models",
        ),
        (
            {"kind": "bradley_terry", **SCORER, "engine": {"name": "sentence_transformers"}},
            "use engine.name=vllm",
        ),
        ({**VOTING, "meta": {"path": "judge"}}, "x.meta needs keep, e.g. "),
        (
            {**VOTING, "meta": {"path": "scorer", "keep": 4}},
            "keeps meta.keep=4 of sampling.n=4 votes",
        ),
        ({**VOTING, "meta": {"path": "judge", "keep": 2}}, "ForCausalLM"),
        (
            {**VOTING, "meta": {"path": "two", "keep": 2}},
            "nothing says which is the score: give reward.specs.x.meta.label='wrong'",
        ),
        (
            {**VOTING, "meta": {"path": "two", "keep": 2, "label": "L"}},
            "x.meta: label 'L': not a label",
        ),
        (
            {**VOTING, "meta": {"path": "scorer", "keep": 2, "engine": {"name": "v"}}},
            "x.meta.engine.name=v",
        ),
        (
            {"kind": "process", **SCORER, "reads": "transcript"},
            "the steps of a process reward are parts of the response",
        ),
    ],
)
def test_a_spec_that_cannot_be(place: Place, spec: Any, words: str):
    assert words in place.problem("x", specs={"x": spec})


def test_a_spec_for_a_name_that_reward_models_lacks(place: Place):
    problem = place.problem("fine", specs={"other": {"path": "m"}})
    assert problem.startswith("reward.specs.other: not in reward.models (fine)")


def test_all_problems_at_once_and_the_others_resolved(place: Place):
    place.write("broken", "raise OSError('no disk')")
    resolved = place.resolve("fine", "nothing", "broken")
    assert [spec.name for spec in resolved.specs] == ["fine"]
    assert len(resolved.problems) == 2
    assert "OSError: no disk" in resolved.problems[1]


# --- what specs carry


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_one_stop_word_is_one_stop_word(place: Place, stop: Any):
    sampling = place.x(**JUDGING, sampling={"stop": stop, "choice": [1, 2]}).sampling
    assert sampling is not None
    assert (sampling.stop, sampling.choice) == (("END",), ("1", "2"))


def test_weights_operations_and_positions(place: Place):
    entries = {**JUDGING, "on_missing": {"impute": 0}}
    resolved = place.resolve(
        "a",
        "fine",
        "b",
        specs={"a": entries, "b": entries},
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
    resolved = place.resolve(
        "both",
        "format",
        "length",
        specs={
            "both": {"kind": "ensemble", "of": ["judge", "fine"], "gate": "length"},
            "judge": {**JUDGING, "gate": "format"},
        },
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


NOWHERE = Surroundings(device="cpu", threads=2, functions_dirs=[])


def test_a_spec_is_complete_when_it_is_built(place: Place):
    component = Component(
        name="./scorer", model_name="scorer", weight=3.0, combine_op="mul", gates=("length",)
    )
    config = RewardConfig(combine="gate", gates=["format"])
    entries = {"path": "./scorer", "gate": "length"}
    spec = build_spec(component, entries, None, model_index=4, config=config, surroundings=NOWHERE)
    assert (spec.name, spec.weight, spec.combine_op) == ("scorer", 3.0, "mul")
    assert (spec.model_index, spec.gates) == (4, ("length", "format"))


def test_a_rule_keeps_the_path_of_its_name_and_has_no_position(place: Place):
    component = Component(name="mine/fine", model_name="fine")
    dropin = load_dropin(place.root / "mine" / "fine.py", "fine")
    spec = build_spec(
        component, {}, dropin, model_index=4, config=RewardConfig(), surroundings=NOWHERE
    )
    assert (spec.name, spec.kind, spec.model_index) == ("mine/fine", "rule", -1)


def test_a_wrong_default_is_reported_by_its_own_key(place: Place):
    problem = place.problem("fine", on_missing="skip")
    assert problem.startswith("reward.on_missing='skip': give mask")


def test_folders_of_drop_ins(tmp_path: Path):
    shipped = tmp_path / "shipped"
    shipped.mkdir()

    def find(folders: Any) -> list[Path]:
        return functions_dirs(folders, working_dir=tmp_path, shipped_dir=shipped)

    assert find(None) == [shipped]
    default, a = tmp_path / "reward_functions", tmp_path / "a"
    default.mkdir()
    assert find(None) == [default, shipped]
    a.mkdir()
    assert find(str(a)) == [a, shipped]
    assert find([a, f"{a}/../a", shipped]) == [a / ".." / "a", shipped]
    with pytest.raises(ConfigError) as caught:
        find([a, "/no/b", "/no/c"])
    assert caught.value.problems == [
        "reward.functions_dir: there is no folder /no/b",
        "reward.functions_dir: there is no folder /no/c",
    ]


# --- drop-ins that only render


def test_score_tokens_need_no_rm_postprocess(place: Place):
    tokens = {"Yes": 1, "No": 0}
    spec = place.x(function="right", path="judge", score_tokens=tokens)
    assert (spec.kind, spec.options.score_tokens) == ("generative", tokens)
    entries = {"path": "judge", "score_tokens": tokens}
    place.write("sure", f"SPEC = {entries!r}\n{RENDERS}")
    assert place.one("sure").dropin is not None


def test_a_judge_whose_verdicts_are_read_needs_rm_postprocess(place: Place):
    entries = {"path": "judge"}
    problem = place.problem("right", specs={"right": entries})
    assert "right.py defines rm_preprocess but not rm_postprocess" in problem
    assert "score_tokens={Yes:1,No:0} reads nothing and one with a parser reads by that" in problem
    entries["parser"] = "Score: (?P<score>[0-9]+)"
    assert place.one("right", specs={"right": entries}).dropin is not None


# --- inputs that do not fit


def test_overlong_belongs_to_one_reward(place: Place):
    assert place.x(**SCORER, overlong="truncate_left").overlong == "truncate_left"
    assert place.x(**SCORER).overlong == "missing"


# --- a second model that keeps the best votes


def test_a_second_model_is_a_role_of_its_own(place: Place) -> None:
    assert list(place.x(**VOTING).engines) == ["main"]
    keep = {"path": "scorer", "keep": 2, "engine": {"max_model_len": 64}}
    spec = place.x(**VOTING, meta=keep)
    assert list(spec.engines) == ["main", "meta"]
    meta = spec.engines["meta"]
    assert (meta.path, meta.runner, meta.max_model_len) == ("scorer", "pooling", 64)
    assert spec.labels is None
    assert "judge (vllm generate" in reward_table([spec])
    assert " + scorer (vllm pooling" in reward_table([spec])
    remote = {key: value for key, value in VOTING.items() if key != "path"}
    assert list(place.x(**remote, server=SERVER, meta=keep).engines) == ["meta"]
    labels = place.x(**VOTING, meta={"path": "two", "keep": 2, "label": "right"}).labels
    assert labels is not None
    assert labels.weights == {"right": 1.0}


def test_a_calibration_knows_how_many_votes_were_kept(place: Place) -> None:
    def digest(path: str, keep: int) -> dict[str, str]:
        return reward_digest(place.x(**VOTING, meta={"path": path, "keep": keep}))

    checkpoint(place.root / "other", head=True, names=("A",))
    assert differing_parts(digest("scorer", 2), digest("scorer", 3)) == [PARTS["entries"]]
    assert PARTS["model"] in differing_parts(digest("scorer", 2), digest("other", 2))


# --- the type to compute in


def test_an_engine_computes_in_its_checkpoints_own_type_unless_a_spec_says(place: Place) -> None:
    stored = place.x(**SCORER).engine
    reduced = place.x(**SCORER, engine={"dtype": "bf16"}).engine
    assert stored is not None
    assert reduced is not None
    assert (stored.dtype, reduced.dtype) == ("float32", "bfloat16")
    assert reduced.key != stored.key


def test_transformers_is_batch_invariant_on_a_cpu(place: Place) -> None:
    engine = place.x(**SCORER, engine={"name": "hf", "batch_invariant": True}).engine
    assert engine is not None
    assert engine.batch_invariant


@pytest.mark.parametrize("engine", ["vllm", "hf", "sentence_transformers"])
def test_embeddings_run_on_an_engine_that_makes_them(place: Place, engine: str) -> None:
    spec = place.x(kind="similarity", path="judge", engine={"name": engine})
    assert [spec.name for spec in spec.engines.values()] == ["sentence_transformers"]


# --- what a reward reads


def test_a_reward_reads_a_part(place: Place):
    assert place.x(function="fine", reads="answer", unclosed=0).reads == Reads(
        part="answer", unclosed=0
    )
    assert place.one("fine").reads == Reads()
    place.write("last", f"SPEC = {{'reads': 'final'}}\n{RULE}")
    assert place.one("last").reads.part == "final"
    steps = place.x(kind="process", **SCORER, reads="answer")
    assert steps.reads.part == "answer"


def test_thinking_that_never_ends_must_not_drop_a_reward(place: Place):
    for name in "ab":
        place.write(name, RULE)
    lost = "has on_missing=renormalize, so a policy could drop it by never ending its thinking"
    read = {"reads": "answer"}
    problems = place.resolve("a", "b", specs={"a": read}, on_missing="renormalize").problems
    assert problems == [
        f"reward 'a' {lost}: give reward.specs.a.unclosed=<a score>, or"
        " reward.specs.a.on_missing=mask"
    ]
    fine = {"a": {"reads": "answer", "unclosed": 0}, "b": {"reads": "answer", "on_missing": "mask"}}
    assert not place.resolve("a", "b", specs=fine, on_missing="renormalize").problems
    both = {"kind": "ensemble", "of": ["a", "b"], "on_missing": "renormalize"}
    (problem,) = place.resolve("both", specs={"a": read, "both": both}).problems
    assert problem.startswith(f"reward 'both' {lost}: give reward.specs.a.unclosed=")


def test_an_ensemble_reads_nothing_itself(place: Place):
    members = {"fine": {"reads": "answer"}}
    ensemble = {"kind": "ensemble", "of": ["fine", "length"]}
    specs = {"both": {**ensemble, "reads": "answer"}, **members}
    problem = place.resolve("both", specs=specs).problems[0]
    assert (
        "specs.both.reads=answer: a reward of kind ensemble reads the scores of its members"
        in problem
    )
    resolved = place.resolve("both", specs={"both": ensemble, **members})
    parts = {spec.name: spec.reads.part for spec in resolved.specs}
    assert parts == {"both": "all", "fine": "answer", "length": "all"}
