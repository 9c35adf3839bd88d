"""The baseline that reads words and no order: a logistic regression on how the two responses'
TF-IDF vectors differ, or on one text's. A reward model has to beat it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from rmrl.reward_training.example import Example

MOST_PAIRS = 20_000
"""Pairs, or texts, that the baseline learns from."""
_FOLDS = 5
_WORDS = 50_000


class TextBaseline:
    """Learns from `pairs_of`'s pairs, whose better response comes first."""

    def __init__(self, pairs: Sequence[Example]) -> None:
        """Raises ValueError where the responses hold no word twice."""
        pairs = pairs[:MOST_PAIRS]
        self._words = _words([text for pair in pairs for text in pair.responses])
        differences: Any = self._differences(pairs)
        # Without an intercept a pair and its mirror image say the same.
        signs = np.where(np.arange(len(pairs)) % 2, -1, 1)
        mirrored = differences.multiply(signs[:, None]).tocsr()
        self._model = LogisticRegression(fit_intercept=False, max_iter=1000).fit(mirrored, signs)

    def probabilities(self, pairs: Sequence[Example]) -> np.ndarray:
        """Return P(the labelled response is the better one) of each pair."""
        return self._model.predict_proba(self._differences(pairs))[:, 1]

    def _differences(self, pairs: Sequence[Example]) -> Any:
        better: Any = self._words.transform([pair.responses[0] for pair in pairs])
        worse: Any = self._words.transform([pair.responses[1] for pair in pairs])
        return better - worse


def class_probabilities(
    texts: Sequence[str], labels: Sequence[int], unseen: Sequence[str], *, count: int
) -> np.ndarray | None:
    """Return P(class), [unseen, count], by texts with their classes. None where these hold no word
    twice, or one class alone."""
    texts = texts[:MOST_PAIRS]
    labels = labels[:MOST_PAIRS]
    if len(set(labels)) < 2:
        return None
    try:
        words = _words(texts)
    except ValueError:
        return None
    model = LogisticRegression(max_iter=1000).fit(words.transform(texts), labels)
    probabilities_NK = np.zeros((len(unseen), count))
    probabilities_NK[:, model.classes_] = model.predict_proba(words.transform(unseen))
    return probabilities_NK


def _words(texts: Sequence[str]) -> TfidfVectorizer:
    """Raises ValueError where no word stands in two texts."""
    return TfidfVectorizer(sublinear_tf=True, min_df=2, max_features=_WORDS).fit(texts)


def fitted(pairs: Sequence[Example]) -> TextBaseline | None:
    """Return the baseline, None where there are too few pairs or words to learn from."""
    if len(pairs) < 2:
        return None
    try:
        return TextBaseline(pairs)
    except ValueError:
        return None


def cross_fitted(pairs: Sequence[Example]) -> np.ndarray | None:
    """Return P(label) of each pair by a baseline that has not seen its prompt, None where there are
    fewer prompts than folds, or too few words."""
    pairs = pairs[:MOST_PAIRS]
    prompts = [pair.asked for pair in pairs]
    if len(set(prompts)) < _FOLDS:
        return None
    probabilities_N = np.full(len(pairs), np.nan)
    for train, test in GroupKFold(_FOLDS).split(prompts, groups=prompts):
        baseline = fitted([pairs[number] for number in train])
        if baseline is None:
            return None
        probabilities_N[test] = baseline.probabilities([pairs[number] for number in test])
    return probabilities_N
