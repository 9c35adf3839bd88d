"""What pair accuracy does not show: proxies of a gold reward under best-of-n and under a short GRPO.

    python examples/overoptimise/overoptimise.py --out overoptimise.json --plot overoptimise.png

A response is a point x, drawn from N(0, I) by the untrained policy. The gold reward is a random
network that saturates, less a price for extreme entries. A proxy is another network, trained on noisy
pairs by the Bradley-Terry loss. Every proxy is then pressed in two ways (arXiv:2210.10760):

best-of-n   the response that the proxy likes best among n; KL = log n - (n - 1) / n
GRPO        the policy N(mu, I) climbs the proxy's score; KL = |mu|^2 / 2

Ensembles are the mean, the minimum and a lower bound of seeds (arXiv:2310.02743). `averaged` is one
network whose weights are their mean, from equal starts (arXiv:2401.12187).

Shapes: N responses    D entries of a response    M members
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rmrl.evaluation.measures.pressure import best_of_n
from rmrl.rewards.kinds.ensemble.reward import combined_scores

Scorer = Callable[[Tensor], np.ndarray]
ENTRIES = 16
HIDDEN = 64
MEMBERS = 4
TEMPERATURE = 0.5
"""Of the labels: P(better) = sigmoid(gold difference / TEMPERATURE)."""
WELL = 1.5
"""Largest size of an entry that costs nothing; 13 % of a standard normal's are larger."""
HOW = ("mean", "min", "lower_bound")
GROUP = 16


def network(activation: type[nn.Module], seed: int) -> nn.Sequential:
    """Return a network of one hidden layer, drawn from the seed."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(ENTRIES, HIDDEN), activation(), nn.Linear(HIDDEN, 1))


@torch.no_grad()
def gold_reward(seed: int) -> Scorer:
    """Return a reward of deviation about 1 that saturates, and that takes off for every entry
    beyond WELL: rare among the policy's first draws, and what a climbing policy makes more of."""
    model = network(nn.Tanh, seed)
    first: Any = model[0]
    first.weight.mul_(4)
    draws: Tensor = model(torch.randn(20_000, ENTRIES))
    mean, deviation = draws.mean(), draws.std()

    @torch.no_grad()
    def score(x_ND: Tensor) -> np.ndarray:
        beyond_N = (x_ND.abs() - WELL).clamp(min=0).square().sum(dim=1)
        quality_N = (model(x_ND)[:, 0] - mean) / deviation
        return (quality_N - beyond_N / 2).double().numpy()

    return score


def trained(gold: Scorer, pairs: int, *, start: int, order: int, steps: int) -> nn.Sequential:
    """Return a proxy; `start` draws its weights, `order` the rows of its steps. All proxies of a
    size learn from the same pairs."""
    model = network(nn.ReLU, start)
    torch.manual_seed(pairs)
    first_PD, second_PD = torch.randn(2, pairs, ENTRIES)
    gap_P = torch.from_numpy(gold(first_PD) - gold(second_PD)) / TEMPERATURE
    sign_P = torch.where(torch.rand(pairs) < gap_P.sigmoid(), 1.0, -1.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    rows = torch.Generator().manual_seed(order)
    for _ in range(steps):
        batch = torch.randint(pairs, (64,), generator=rows)
        margin_B = (model(first_PD[batch]) - model(second_PD[batch]))[:, 0] * sign_P[batch]
        loss = -logsigmoid(margin_B).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def averaged(models: Sequence[nn.Sequential]) -> nn.Sequential:
    """Return one network with the mean of the weights."""
    mean = copy.deepcopy(models[0])
    states = [model.state_dict() for model in models]
    mean.load_state_dict({name: sum(s[name] for s in states) / len(states) for name in states[0]})
    return mean


@torch.no_grad()
def scores_of(models: Sequence[nn.Sequential], how: str, x_ND: Tensor) -> np.ndarray:
    """Return the proxies' combined scores."""
    return combined_scores(np.stack([m(x_ND)[:, 0].double().numpy() for m in models]), how)


def pair_accuracy(score: Scorer, gold: Scorer) -> float:
    """Return the share of fresh pairs that proxy and gold order alike."""
    torch.manual_seed(1)
    first_ND, second_ND = torch.randn(2, 4000, ENTRIES)
    same = np.sign(score(first_ND) - score(second_ND)) == np.sign(gold(first_ND) - gold(second_ND))
    return float(same.mean())


def best_of_n_curve(score: Scorer, gold: Scorer, *, prompts: int, most: int) -> list[list[float]]:
    """Return [n, KL, gold] for each n, a power of four, by the unbiased estimator."""
    sizes = [4**power for power in range(int(math.log(most, 4)) + 1)]
    sums = np.zeros(len(sizes))
    for prompt in range(prompts):
        torch.manual_seed(1000 + prompt)
        x_ND = torch.randn(most, ENTRIES)
        scores_N, gold_N = score(x_ND), gold(x_ND)
        sums += [best_of_n(scores_N.tolist(), gold_N.tolist(), n) for n in sizes]
    kl = [math.log(n) - (n - 1) / n for n in sizes]
    return [list(point) for point in zip(sizes, kl, (sums / prompts).tolist(), strict=True)]


def grpo_curve(score: Scorer, gold: Scorer, *, steps: int, seed: int) -> list[list[float]]:
    """Return [step, KL, gold] of a policy that climbs the proxy's score."""
    rng = torch.Generator().manual_seed(seed)
    mean_D = torch.zeros(ENTRIES)
    curve: list[list[float]] = []
    for step in range(steps):
        x_ND = mean_D + torch.randn(16 * GROUP, ENTRIES, generator=rng)
        groups = score(x_ND).reshape(16, GROUP)
        deviation = groups.std(axis=1, ddof=1, keepdims=True) + 1e-6
        advantages = (groups - groups.mean(axis=1, keepdims=True)) / deviation
        if step % 10 == 0:
            curve.append([step, float(mean_D.square().sum() / 2), float(gold(x_ND).mean())])
        # d log N(x; mu, I) / d mu = x - mu
        weights_N = torch.from_numpy(advantages.reshape(-1)).float()
        mean_D = mean_D + 0.1 * (weights_N[:, None] * (x_ND - mean_D)).mean(dim=0)
    return curve


def summary(curve: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return where gold is highest, and what it is at the end."""
    at, kl, value = max(curve, key=lambda point: point[2])
    return {"peak_at": at, "peak_kl": kl, "peak_gold": value, "last_gold": curve[-1][2]}


def judge(score: Scorer, gold: Scorer, settings: argparse.Namespace) -> dict[str, Any]:
    """Return one proxy's accuracy and its curves under both pressures."""
    curves = {
        "best_of_n": best_of_n_curve(score, gold, prompts=settings.prompts, most=settings.most),
        "grpo": grpo_curve(score, gold, steps=settings.grpo_steps, seed=3),
    }
    found: dict[str, Any] = {"accuracy": pair_accuracy(score, gold)}
    for name, curve in curves.items():
        found[name] = {"curve": curve, **summary(curve)}
    return found


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw gold against the root of KL, a row per pressure and a column per size."""
    figure = Figure(figsize=(4 * len(result["sizes"]), 7), layout="constrained")
    axes = figure.subplots(2, len(result["sizes"]), sharey="row", squeeze=False)
    for column, (size, proxies) in enumerate(result["sizes"].items()):
        for row, pressure in enumerate(("best_of_n", "grpo")):
            axis = axes[row][column]
            for name, found in proxies.items():
                points = found[pressure]["curve"]
                axis.plot([math.sqrt(p[1]) for p in points], [p[2] for p in points], label=name)
            axis.set(title=f"{pressure}, {size} pairs", xlabel="sqrt(KL)", ylabel="gold")
            axis.axhline(0, color="grey", linewidth=0.5)
    axes[0][0].legend(fontsize="small")
    figure.savefig(path)


def main() -> None:
    """Train the proxies, press them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", nargs="+", type=int, default=[250, 1000, 4000])
    parser.add_argument("--steps", type=int, default=1000, help="of a proxy's training")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--most", type=int, default=256, help="responses to a prompt")
    parser.add_argument("--grpo-steps", type=int, default=400)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    gold = gold_reward(seed=0)
    command = " ".join(["python examples/overoptimise/overoptimise.py", *sys.argv[1:]])
    result: dict[str, Any] = {"command": command, "sizes": {}}
    print(
        f"{'pairs':>6} {'proxy':<12} accuracy   best-of-n: peak at n, last   GRPO: peak at KL, last"
    )
    for pairs in settings.pairs:
        seeds = range(MEMBERS)
        apart = [trained(gold, pairs, start=s, order=s, steps=settings.steps) for s in seeds]
        alike = [trained(gold, pairs, start=0, order=s, steps=settings.steps) for s in seeds]
        scorers: dict[str, Scorer] = {
            "single": partial(scores_of, apart[:1], "mean"),
            **{how: partial(scores_of, apart, how) for how in HOW},
            "averaged": partial(scores_of, [averaged(alike)], "mean"),
        }
        proxies = result["sizes"].setdefault(str(pairs), {})
        for name, scorer in scorers.items():
            proxies[name] = found = judge(scorer, gold, settings)
            best, grpo = found["best_of_n"], found["grpo"]
            print(
                f"{pairs:>6} {name:<12} {found['accuracy']:.3f}      "
                f"{best['peak_gold']:6.2f} {best['peak_at']:>6.0f} {best['last_gold']:6.2f}        "
                f"{grpo['peak_gold']:6.2f} {grpo['peak_kl']:6.1f} {grpo['last_gold']:6.2f}",
                flush=True,
            )
    if settings.out:
        settings.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if settings.plot:
        draw(result, settings.plot)


if __name__ == "__main__":
    main()
