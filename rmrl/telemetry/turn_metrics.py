"""Metrics about responses that an environment played.

rollout/turns            mean number of turns that the policy sampled
rollout/hole_fraction    share of the tokens that others wrote
rollout/branches         mean number of branches
rollout/failed           share with an error, a deadline included
rollout/abandoned        share that the run did not wait for
rollout/stop/<reason>    share that ended so, in the environment's words
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from rmrl.types import Metrics, Response

ABANDONED = "abandoned"
_UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")


def turn_metrics(responses: Sequence[Response]) -> Metrics:
    """Return one step's metrics. {} where no environment played."""
    talks = [response.prompt.conversation for response in responses]
    if not any(talks):
        return {}
    count = len(responses)
    stops = Counter(talk.stop for talk in talks if talk is not None and talk.stop)
    failed = sum(talk is not None and talk.status not in ("ok", "overlong") for talk in talks)
    turns = sum(turn.role == "assistant" for response in responses for turn in response.turns)
    tokens = sum(len(response.token_ids) for response in responses)
    sampled = sum(response.sampled for response in responses)
    branches = sum(len(response.branches) or 1 for response in responses)
    metrics = {
        "rollout/turns": turns / count,
        "rollout/hole_fraction": (tokens - sampled) / max(tokens, 1),
        "rollout/branches": branches / count,
        "rollout/failed": failed / count,
        "rollout/abandoned": stops.pop(ABANDONED, 0) / count,
    }
    for reason, number in sorted(stops.items()):
        metrics[f"rollout/stop/{_UNNAMED.sub('_', reason)}"] = number / count
    return metrics
