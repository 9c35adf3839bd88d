import json
import math
from typing import Any

import pytest

from rmrl.errors import RewardError
from rmrl.inference.reward_engine_base import GenerateRequest, TextOutput
from rmrl.rewards.remote import WIRES
from rmrl.rewards.remote.spec import HTTPSpec
from rmrl.types import Sampling
from tests.patience import PATIENCE_S
from tests.rewards.remote.server import KEY, Reply, Seen, Server, script, serving

GREEDY = Sampling(max_tokens=16, temperature=0.0)
CHAT = (("system", "Judge."), ("user", "Is it so?"))


def choice(text: Any, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "message": {"role": "assistant", "content": text} | more.pop("message", {}),
        "finish_reason": finish,
        **more,
    }


def answer(*choices: dict[str, Any], tokens: tuple[int, int] = (11, 5)) -> Reply:
    usage = {
        "prompt_tokens": tokens[0],
        "completion_tokens": tokens[1],
        "total_tokens": sum(tokens),
    }
    return Reply({"id": "x", "object": "chat.completion", "choices": list(choices), "usage": usage})


async def submit(
    server: Server, *requests: GenerateRequest, **changes: Any
) -> list[list[TextOutput]]:
    given: dict[str, Any] = {
        "url": server.url + "/v1",
        "wire": "openai",
        "model": "judge-1",
        "timeout_s": PATIENCE_S,
        "max_tries": 1,
    }
    wire = WIRES["openai"](HTTPSpec(**(given | changes)))
    try:
        return await wire.submit("generate", requests)
    finally:
        await wire.aclose()


def ask(sampling: Sampling = GREEDY, **more: Any) -> GenerateRequest:
    return GenerateRequest((1, 2, 3), sampling, **({"messages": CHAT} | more))


async def test_a_chat() -> None:
    with serving(script(answer(choice("Score: 7")))) as server:
        assert await submit(server, ask()) == [[TextOutput("Score: 7", "stop", 11, 5)]]
    assert server.seen[0].path == "/v1/chat/completions"
    assert server.seen[0].body == {
        "model": "judge-1",
        "messages": [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it so?"}],
        "max_tokens": 16, "temperature": 0.0, "top_p": 1.0, "n": 1,
    }  # fmt: skip


async def test_a_completion_where_there_are_no_messages() -> None:
    with serving(script(answer({"index": 0, "text": " 7", "finish_reason": "length"}))) as server:
        assert await submit(server, ask(messages=(), text="Score:")) == [
            [TextOutput(" 7", "length", 11, 5)]
        ]
    assert server.seen[0].path == "/v1/completions"
    assert server.seen[0].body["prompt"] == "Score:"
    assert "messages" not in server.seen[0].body


async def test_all_of_the_sampling_travels() -> None:
    sampling = Sampling(
        max_tokens=4,
        temperature=0.7,
        top_p=0.9,
        top_k=20,
        n=2,
        seed=5,
        stop=("###",),
        ignore_eos=True,
    )
    with serving(script(answer(choice("a"), choice("b")))) as server:
        await submit(server, ask(sampling))
    expected = {
        "max_tokens": 4,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "n": 2,
        "seed": 5,
        "stop": ["###"],
        "ignore_eos": True,
    }
    assert {name: server.seen[0].body[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("sampling", "entry", "value"),
    [
        (
            Sampling(max_tokens=1, choice=("yes", "no")),
            "structured_outputs",
            {"choice": ["yes", "no"]},
        ),
        (Sampling(max_tokens=1, regex="[0-9]"), "structured_outputs", {"regex": "[0-9]"}),
        (
            Sampling(max_tokens=1, json_schema='{"type": "object"}'),
            "response_format",
            {
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": {"type": "object"}, "strict": True},
            },
        ),
    ],
)
async def test_structured_output(sampling: Sampling, entry: str, value: Any) -> None:
    with serving(script(answer(choice("yes")))) as server:
        await submit(server, ask(sampling))
    assert server.seen[0].body[entry] == value


async def test_a_schema_that_is_no_json() -> None:
    with (
        serving(script(answer(choice("yes")))) as server,
        pytest.raises(RewardError, match="json_schema is no JSON"),
    ):
        await submit(server, ask(Sampling(max_tokens=1, json_schema="{")))


async def test_samples_share_the_tokens_told() -> None:
    with serving(
        script(answer(choice("a"), choice("b"), choice("c", "length"), tokens=(9, 8)))
    ) as server:
        [outputs] = await submit(server, ask(Sampling(max_tokens=4, n=3)))
    # 8 tokens over three samples: 3 + 3 + 2
    assert [(o.text, o.finish_reason, o.tokens_in, o.tokens_out) for o in outputs] == [
        ("a", "stop", 9, 3), ("b", "stop", 9, 3), ("c", "length", 9, 2),
    ]  # fmt: skip


async def test_greedy_samples_are_drawn_once() -> None:
    with serving(script(answer(choice("7")))) as server:
        [outputs] = await submit(server, ask(Sampling(max_tokens=4, n=3, temperature=0.0)))
    assert [o.text for o in outputs] == ["7", "7", "7"]
    assert server.seen[0].body["n"] == 1


async def test_lacking_samples_are_marked_and_not_copied() -> None:
    with serving(script(answer(choice("7")))) as server:
        [outputs] = await submit(server, ask(Sampling(max_tokens=4, n=3)))
    assert [(o.text, o.failure) for o in outputs] == [
        ("7", ""),
        ("", "provider_error"),
        ("", "provider_error"),
    ]
    assert "1 samples where 3 were requested" in outputs[1].detail


async def test_too_many_samples() -> None:
    with serving(script(answer(choice("7"), choice("8")))) as server:
        [[output]] = await submit(server, ask())
    assert output.failure == "provider_error"
    assert "2 samples where 1 were requested" in output.detail


@pytest.mark.parametrize(
    ("reply", "failure", "said"),
    [
        (
            answer(choice(None, message={"refusal": "I will not judge this."})),
            "judge_refused",
            "I will not judge this.",
        ),
        (answer(choice("", "content_filter")), "judge_refused", "content filter"),
        (
            Reply({"error": {"message": "filtered", "code": "content_filter"}}, 400),
            "judge_refused",
            "filtered",
        ),
        (
            Reply({"error": {"message": "too long", "code": "context_length_exceeded"}}, 400),
            "overlong",
            "too long",
        ),
        (
            Reply({"message": "This model's maximum context length is 64 tokens."}, 400),
            "overlong",
            "64 tokens",
        ),
        (Reply({"error": {"message": "no such model"}}, 404), "provider_error", "no such model"),
        (answer(choice("half", "abort")), "provider_error", "abort"),
        (answer(choice(["parts"])), "provider_error", "gave list"),
        (Reply({"choices": None}), "provider_error", "without a list of 'choices'"),
        (Reply(["?"]), "provider_error", "without a list of 'choices'"),
        (Reply(b"<html>"), "provider_error", "no JSON"),
    ],
)
async def test_failures(reply: Reply, failure: str, said: str) -> None:
    with serving(script(reply)) as server:
        [[output]] = await submit(server, ask())
    assert (output.text, output.failure) == ("", failure)
    assert said in output.detail


async def test_a_judge_that_ran_out_while_thinking_says_nothing() -> None:
    with serving(script(answer(choice(None, "length")))) as server:
        [[output]] = await submit(server, ask())
    assert (output.text, output.finish_reason, output.failure) == ("", "length", "")


async def test_usage_that_is_nonsense_is_no_reason_to_fail() -> None:
    with serving(
        script(
            Reply(
                {
                    "choices": [choice("7")],
                    "usage": {"prompt_tokens": "many", "completion_tokens": None},
                }
            )
        )
    ) as server:
        assert await submit(server, ask()) == [[TextOutput("7", "stop", 0, 0)]]


async def test_one_bad_request_spoils_no_other() -> None:
    def reply(seen: Seen) -> Reply:
        text = seen.body["messages"][0]["content"]
        return Reply({"error": "bad"}, 400) if text == "2" else answer(choice(text))

    with serving(reply) as server:
        outputs = await submit(server, *(ask(messages=(("user", str(i)),)) for i in range(5)))
    assert [(o.text, o.failure) for [o] in outputs] == [
        ("0", ""),
        ("1", ""),
        ("", "provider_error"),
        ("3", ""),
        ("4", ""),
    ]


def top(*pairs: tuple[str, float]) -> dict[str, Any]:
    entries = [{"token": token, "logprob": value, "bytes": None} for token, value in pairs]
    return {
        "content": [
            {**entries[0], "top_logprobs": entries},
            {"token": "x", "logprob": 0.0, "top_logprobs": []},
        ]
    }


async def test_logprobs_of_choices_by_their_text() -> None:
    # " yes" and "yes" are one choice: log(0.25 + 0.5) = log 0.75
    logs = top(("yes", math.log(0.5)), (" yes", math.log(0.25)), ("No", math.log(0.125)))
    with serving(script(answer(choice("yes", logprobs=logs)))) as server:
        [[output]] = await submit(
            server, ask(Sampling(max_tokens=1, choice=("yes", "no")), choice_tokens=(40, 41))
        )
    assert output.choice_logprobs == (pytest.approx(math.log(0.75)), -math.inf)
    assert (server.seen[0].body["logprobs"], server.seen[0].body["top_logprobs"]) == (True, 20)


async def test_logprobs_by_token_id_where_the_server_gives_ids() -> None:
    with serving(
        script(answer(choice("y", logprobs=top(("token_id:41", -0.5), ("token_id:4", -1.5)))))
    ) as server:
        [[output]] = await submit(
            server, ask(choice_tokens=(40, 41)), extra_body={"return_tokens_as_token_ids": True}
        )
    assert output.choice_logprobs == (-math.inf, -0.5)
    assert server.seen[0].body["return_tokens_as_token_ids"] is True


async def test_logprobs_of_a_completion() -> None:
    found = {
        "index": 0,
        "text": "A",
        "finish_reason": "stop",
        "logprobs": {"tokens": ["A"], "top_logprobs": [{"A": -0.25, "B": -1.75}]},
    }
    with serving(script(answer(found))) as server:
        [[output]] = await submit(
            server,
            ask(
                Sampling(max_tokens=1, choice=("A", "B")),
                messages=(),
                text="?",
                choice_tokens=(8, 9),
            ),
        )
    assert output.choice_logprobs == (-0.25, -1.75)
    assert server.seen[0].body["logprobs"] == 5


@pytest.mark.parametrize(
    "logs",
    [
        None,
        {},
        {"content": []},
        {"content": [{"token": "yes", "logprob": None}]},
        {"top_logprobs": [None]},
    ],
)
async def test_no_logprobs_are_minus_infinity(logs: Any) -> None:
    with serving(script(answer(choice("yes", logprobs=logs)))) as server:
        [[output]] = await submit(
            server, ask(Sampling(max_tokens=1, choice=("yes", "no")), choice_tokens=(40, 41))
        )
    assert output.choice_logprobs == (-math.inf, -math.inf)
    assert output.failure == ""


async def test_the_key_travels_and_is_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with serving(
        lambda seen: Reply({"error": {"message": f"bad key {seen.headers['Authorization']}"}}, 401)
    ) as server:
        [[output]] = await submit(server, ask(), api_key_env="JUDGE_KEY")
    assert server.seen[0].headers["Authorization"] == f"Bearer {KEY}"
    assert "401 Unauthorized: bad key <secret>" in output.detail
    assert KEY not in json.dumps(output.detail)


async def test_extra_body_has_the_last_word() -> None:
    with serving(script(answer(choice("7")))) as server:
        await submit(
            server,
            ask(),
            extra_body={"max_tokens": None, "max_completion_tokens": 512, "top_p": 0.5},
        )
    body = server.seen[0].body
    assert "max_tokens" not in body
    assert (body["max_completion_tokens"], body["top_p"]) == (512, 0.5)


async def test_a_method_the_wire_does_not_have() -> None:
    with pytest.raises(RewardError, match="no method 'classify'"):
        await WIRES["openai"](HTTPSpec(url="http://127.0.0.1:9", wire="openai")).submit(
            "classify", []
        )
