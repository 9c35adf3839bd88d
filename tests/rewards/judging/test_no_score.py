"""A number counts only where it is a score: not what mathematics computes, not that of one aspect
beside others, not one that was taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.texts_without_a_score import SCALES, SENTENCES, sentences, share, table
from rmrl.rewards.judging.reader import read_choice, read_number

DATA = Path(__file__).resolve().parents[3].parent / "shared" / "data"
PAIR = ["A", "B", "tie"]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_lone_number_of_a_text_without_a_score_is_no_verdict(sentence: str):
    reading = read_number(sentence.format(n=7), 0, 10)
    assert (reading.verdict, reading.reason) == (None, "no verdict")


@pytest.mark.parametrize("name", SCALES)
def test_the_same_sentences_by_scale_and_among_others(name: str):
    assert share(sentences(*SCALES[name]), SCALES[name]) == 0


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the texts are not at {DATA}")
def test_hardly_a_number_of_real_mathematics_is_read():
    for row in table(DATA, most=100):
        for name in SCALES:
            assert row[name] <= 0.01, row


@pytest.mark.parametrize(
    "text",
    [
        "My score is 7, as 2 steps fail.",
        "The score I'd assign here would be 7.",
        "7 would be a fair rating.",
        "It's a 7.",
        "The final answer is 12. Score: 7",
        "I rate the response a 7 because its answer is 12.",
        "Good reply, 7/10.",
        "Helpfulness: 7/10",
        "My final score is \\boxed{7}.",
        "It is clear.\n\n\\boxed{7}",
        "According to the rubric, this would be a Score 7, as it gives an example.",
    ],
)
def test_a_number_with_a_word_of_scoring_or_little_else_is_one(text: str):
    assert read_number(text, 0, 10).verdict == 7


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9 for accuracy, 5 for style, so 7 overall", 7),
        ("Accuracy 9, style 5, overall 7", 7),
        ("- Accuracy: 9\n- Style: 5\n- Overall: 7", 7),
        ("I give it 9 for accuracy and 5 for style.", None),
        ("9/10 for accuracy, 5/10 for style.", None),
        ("Clarity score: 9. Accuracy: 5.", None),
        ("Clarity score: 9. Accuracy is weak, so I'd rate it 6.", 6),
        ("I give it 9 for accuracy.", 9),  # the only number
        ("Clarity score: 9", 9),
    ],
)
def test_the_number_of_an_aspect_does_not_stand_for_the_whole(text: str, number: float | None):
    assert read_number(text, 0, 10).verdict == number


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Verdict: B\nIt is shorter.\nCorrected verdict: A", "A"),
        ("Verdict: B. On second thought, A is better.", "A"),
        ("[[B]]\n\nOn reflection, I prefer A.", "A"),
        ("Verdict: B\nCorrection: A", "A"),
        ("Verdict: B. Actually, A is not better at all.", "B"),  # nothing is taken back
        ("A is better. Actually, B is better in terms of style.", "A"),
        ("[[A]] It should revise its second part.", "A"),
    ],
)
def test_a_verdict_that_is_taken_back_does_not_count(text: str, choice: str):
    assert read_choice(text, PAIR).verdict == choice


@pytest.mark.parametrize(
    "text",
    [
        "[[3]] On second thought, I give it a 5.",
        "Final score: 3\nI overlooked a step.\nCorrected score: 5",
        "Final score: 3. Wait, the last step is right. Score: 5",
        "Score: 3/10. Correction: 5/10.",
    ],
)
def test_a_score_that_is_taken_back_does_not_count(text: str):
    assert read_number(text, 0, 10).verdict == 5


@pytest.mark.parametrize(
    ("text", "low", "high", "number"),
    [
        ("{'score': 4, 'reason': \"it's fine\"}", 1, 5, 4),
        ("{'reason': 'of 3 it\\'s 2', 'score': '4'}", 1, 5, 4),
        ('{"result": 42, "score": 4}', 0, 100, 4),
        ("Result: 4", 1, 5, 4),
        ("The feedback is good.\nResult: 4", 1, 5, 4),
        ("2 and 2 are 4.\nResult: 4", 1, 5, None),  # mathematics has results, too
        ("Accuracy: 4\nClarity: 3\n\n**Overall** 4", 1, 5, 4),
        ("7 von 10 Punkten", 0, 10, 7),
        ("Ich gebe 7 von 10 Punkten.", 0, 10, 7),
        ("Gesamtbewertung: 7 von 10", 0, 10, 7),
        ("评分:10分制7分", 0, 10, 7),
        ("10分中得7分", 0, 10, 7),
        ("7分/10分", 0, 10, 7),
    ],
)
def test_forms_of_scores(text: str, low: float, high: float, number: float | None):
    assert read_number(text, low, high).verdict == number


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("{'winner': 'A', 'reason': 'B is longer'}", "A"),
        ("A: 6, B: 8", "B"),
        ("Response A: 8/10\nResponse B: 6/10", "A"),
        ("Score A: 8\nScore B: 8", "tie"),
        ("Response A gets 6/10 and Response B gets 8/10.", "B"),
        ("The first one is long. A scores 9, B scores 8.", "A"),
        ("Scores: A: 8, B: 6. B is better.", None),
        ("Both compute. Response A: 42. Response B: 40.", None),  # their answers
        ("A: 8 errors, B: 6 errors", None),
        ("Accuracy: A\nStyle: B\nOverall: A", "A"),
        ("A is better for accuracy; B for style; overall B.", "B"),
        ("Ranking:\n1. Response B\n2. Response A", "B"),
        ("Rank 1: B\nRank 2: A", "B"),
        ("Ranking: B, A", "B"),
        ("B isn't as good as A.", "A"),
        ("Response B wasn't quite as good as Response A.", "A"),
        ("Antwort A ist schlechter.", None),
    ],
)
def test_forms_of_choices(text: str, choice: str | None):
    assert read_choice(text, PAIR).verdict == choice
