"""A fake of inside/verifiers_host.py that needs no verifiers: plays episodes of up to three turns
with real requests to the endpoint, and writes traces in verifiers' form.

A task {"text": ..., "does": ...} says what happens: plays (default), forks (the second turn's
context rewrites the first, without its thinking), compacts (the second context holds no turn, the
harness answers the first of its two, and the model the other), goes_on (until a turn is refused,
which its harness takes as an error), is_cut (by a limit on turns), fails, hangs, falls_silent (ends its replies and reads on), dies (the
process: always, or once for the file `mark`), lies (a token that nobody drew), two_agents.
"""

import itertools
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path


def ask(client, trace, tokens, **sampling):
    body = {"model": "m", "token_ids": tokens, "sampling_params": sampling}
    request = urllib.request.Request(
        client["base_url"].removesuffix("/v1") + "/inference/v1/generate",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {os.environ[client['api_key_var']]}",
            "X-Session-ID": trace,
        },
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]


def node(parent, role, text, tokens, *, sampled=0):
    mask = [False] * (len(tokens) - sampled) + [True] * sampled
    return {
        "parent": parent,
        "message": {"role": role, "content": text},
        "sampled": bool(sampled),
        "token_ids": tokens,
        "mask": mask,
    }


def play(request, name):
    task = request["task"]
    does = task.get("does", "plays")
    mark = task.get("mark")
    if does == "fails":
        raise RuntimeError("the tool is gone")
    if does == "falls_silent":
        os.close(1)
    if does in ("hangs", "falls_silent"):
        time.sleep(3600)
    if does == "dies" and mark and not Path(mark).exists():
        Path(mark).touch()
        os._exit(9)
    if does == "dies" and not mark:
        os._exit(9)
    prompt = [1, 2, 3]
    first = ask(request["client"], name, prompt)["token_ids"]
    nodes = [node(None, "user", task["text"], prompt[:-1])]
    nodes.append(node(0, "assistant", "one", [3, *first], sampled=len(first)))
    if does == "lies":
        nodes[1]["token_ids"][-1] += 1
    refused = False
    if does == "goes_on":
        context = [*prompt, *first]
        while not refused:
            try:
                more = ask(request["client"], name, [*context, 4])["token_ids"]
            except urllib.error.HTTPError:
                refused = True
            else:
                nodes.append(node(len(nodes) - 1, "assistant", "on", [4, *more], sampled=len(more)))
                context += [4, *more]
    elif does == "compacts":
        context = [1, 50, 3]
        second = ask(request["client"], name, context)["token_ids"]
        third = ask(request["client"], name, [*context, *second, 51, 5])["token_ids"]
        nodes += [node(None, "user", "in short", context[:-1])]
        nodes.append(node(2, "assistant", "two", [3, *second], sampled=len(second)))
        nodes += [node(3, "assistant", "noted", [51]), node(4, "user", "more", [5])]
        nodes.append(node(5, "assistant", "three", third, sampled=len(third)))
    elif does == "forks":
        nodes[1]["message"]["reasoning_content"] = "a thought"
        again = [1, 2, 3, 99]
        second = ask(request["client"], name, [*again, 5])["token_ids"]
        nodes += [node(None, "user", task["text"], [1, 2, 3]), node(2, "assistant", "one", [99])]
        nodes.append(node(3, "user", "more", [5]))
        nodes.append(node(4, "assistant", "two", second, sampled=len(second)))
    else:
        second = ask(request["client"], name, [*prompt, *first, 4, 5])["token_ids"]
        nodes.append(node(1, "tool", "result", [4]))
        nodes.append(node(2, "assistant", "two", [5, *second], sampled=len(second)))
    trace = {
        "id": name,
        "agent": {"name": "agent", "trainable": True},
        "task": {"data": task},
        "nodes": nodes,
        "ok": not refused,
        "calls": [{"finish_reason": task.get("finish", "stop")}],
        "rewards": {"right": {"score": 1.0, "weight": 2.0}, "later": None},
        "stop_condition": task.get("stop", "max_turns" if does == "is_cut" else "agent_completed"),
    }
    traces = [trace, trace] if does == "two_agents" else [trace]
    return {"task": {"data": task}, "ok": True, "traces": traces}


def main():
    lock = threading.Lock()
    numbers = itertools.count()

    def reply(**fields):
        with lock:
            print(json.dumps(fields), flush=True)

    def answer(request):
        try:
            name = f"trace {next(numbers)} of {os.getpid()}"
            reply(id=request["id"], trace=name)
            reply(id=request["id"], episode=play(request, name))
        except Exception as error:
            reply(id=request["id"], error=f"{type(error).__name__}: {error}")

    opening = json.loads(sys.stdin.readline())
    if opening["env"]["taskset"]["id"] == "missing":
        reply(failed="ModuleNotFoundError: taskset 'missing' not found")
        return
    if opening["env"]["taskset"]["id"] == "no_verifiers":
        raise ModuleNotFoundError("No module named 'verifiers'")
    if opening["env"]["taskset"]["id"] == "no_prime":
        raise SystemExit("not authenticated with prime - run `prime login`")
    reply(ready="0.4.fake")
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "tasks":
            reply(id=request["id"], tasks=[{"text": str(n)} for n in range(request["count"] or 3)])
        elif request["op"] == "run":
            threading.Thread(target=answer, args=[request], daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
