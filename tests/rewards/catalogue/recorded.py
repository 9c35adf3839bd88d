"""Answers of the catalogue's models, and answers in their form, with the score each is read as.

`source` says where an answer was recorded; "form" is an answer written here in the form that the
model's prompt or card states. Long recordings are shortened in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    preset: str
    text: str
    expected: Any
    source: str = "form"


_COMPASS = "README of open-compass/CompassVerifier"
_PROMETHEUS = "libs/prometheus-eval/tests/test_parser.py of prometheus-eval/prometheus-eval"
_NEMO = "tests of the generative reward model in NVIDIA-NeMo/Gym"
_PANDALM = "data/pandalm-7b-testset-v1.json of WeOpenML/PandaLM"
_GUARD = "https://ollama.com/library/llama-guard3 (examples)"

RIGHT = (
    Answer("compass-verifier-3b", "A", 1.0, _COMPASS),
    Answer("compass-verifier-3b", "B", 0.0, _COMPASS),
    Answer("compass-verifier-3b", "C", 0.0, _COMPASS),
    Answer(
        "compass-verifier-7b",
        "4. **Numerical Precision**:\n   - The candidate's answer is precise and matches the"
        " standard answer when converted to decimal form.\n\nFinal Judgment: \\boxed{A} - CORRECT",
        1.0,
        _COMPASS,
    ),
    Answer(
        "compass-verifier-7b",
        "4. **Conclusion**:\n   - The candidate's answer does not match the standard answer.\n\n"
        "Final Judgment: \\boxed{B} - INCORRECT",
        0.0,
        _COMPASS,
    ),
    Answer("compass-verifier-32b", "CORRECT", 1.0),
    Answer("compass-verifier-32b", "INCORRECT", 0.0),
    Answer("compass-verifier-32b", "A. Correct", 1.0),
    Answer("compass-verifier-32b", "A: CORRECT", 1.0),
    Answer("compass-verifier-32b", "B: INCORRECT.", 0.0),
    Answer("compass-verifier-7b", "They agree.\n\n**Final Judgment:** A", 1.0),
    Answer("compass-verifier-7b", "They differ.\n\n**Final Judgment: B (INCORRECT)**\n", 0.0),
    Answer("compass-verifier-7b", "It is empty.\n\nFinal Judgment: $\\boxed{C}$.", 0.0),
    Answer("xverify-7b", "Correct", 1.0),
    Answer("xverify-7b", "[Incorrect]", 0.0),
    Answer("general-verifier", "Both are the same factors.\n\nFinal Decision: Yes", 1.0),
    Answer("general-verifier", "The signs differ.\n\n**Final Decision:** No", 0.0),
    Answer(
        "rm-r1-qwen2.5-14b",
        "Chatbot B provides no additional value beyond the basic information.\n</eval>\n\n"
        "<answer>[[A]]</answer>",
        1.0,
        "demo/demo.ipynb of RM-R1-UIUC/RM-R1",
    ),
    Answer("rm-r1-qwen2.5-7b", "<eval>So [[A]] it is not.</eval>\n<answer>[[B]]</answer>", 0.0),
    Answer("rm-r1-deepseek-distilled-7b", "A is wrong.\n\n<answer>[[B]]</answer>", 0.0),
    Answer(
        "nemotron-genrm-49b",
        "\n[The Begin of Individual Scores]\n\\boxed{2, 4}\n[The End of Individual Scores]\n\n"
        "[The Begin of Ranking Score]\n\\boxed{6}\n[The End of Ranking Score]\n",
        0.0,
        _NEMO,
    ),
    Answer(
        "nemotron-genrm-49b",
        "[The Begin of Individual Scores]\n\\boxed{5, 4}\n[The End of Individual Scores]\n"
        "[The Begin of Ranking Score]\n\\boxed{3} \n[The End of Ranking Score]",
        0.6,  # (6 - 3) / 5
    ),
    Answer(
        "pandalm-7b",
        "2\n\n### Reason: Response 2 is better because it is more concise and still conveys the"
        " same meaning as the original sentence.\n\n### Reference: It is concise.",
        0.0,
        _PANDALM + " (verdict and reason; the reference is written here)",
    ),
    Answer(
        "pandalm-7b",
        "1\n\n### Reason: Response 1 is better because it is concise and still conveys the same"
        " meaning as the original sentence.\n\n### Reference: It is concise.",
        1.0,
        _PANDALM + " (verdict and reason; the reference is written here)",
    ),
    Answer("pandalm-7b", "Tie\n\n### Reason: Both are the same.", 0.5),
    Answer("prometheus-2-7b", "Excellent. [RESULT] 5 out of 5", 1.0, _PROMETHEUS),
    Answer("prometheus-2-7b", "Poor performance. [RESULT] score of 1", 0.0, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. [Result] 3", 0.5, _PROMETHEUS),
    Answer("prometheus-2-7b", "Needs improvement. [Result] Score: 2", 0.25, _PROMETHEUS),
    Answer("prometheus-2-7b", "Well done. [Result] Result: 4", 0.75, _PROMETHEUS),
    Answer("prometheus-2-7b", "Average. [Result] 4/5", 0.75, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. (Score 5)", 1.0, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. [RESULT] (5)", 1.0, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. [Score 4]", 0.75, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. score: 3", 0.5, _PROMETHEUS),
    Answer("prometheus-2-7b", "Good job. score of 1", 0.0, _PROMETHEUS),
    Answer("prometheus-2-7b", "It errs.\n\n**[RESULT]: 4**\n", 0.75),  # (4 - 1) / 4
    Answer("prometheus-2-7b", "By Score 3 it is more. The final score: 4.", 0.75),
    Answer("prometheus-2-relative-7b", "Feedback: B is short. **[RESULT]: A**.", 1.0),
    Answer(
        "prometheus-2-relative-7b",
        "Feedback: Both responses are clear... [Result] Response B",
        0.0,
        _PROMETHEUS,
    ),
    Answer("prometheus-2-relative-7b", "Response A is better. [RESULT] A", 1.0, _PROMETHEUS),
    Answer("prometheus-2-relative-7b", "Prefer Response B. [RESULT] B", 0.0, _PROMETHEUS),
    Answer(
        "prometheus-2-relative-7b",
        "Feedback: Both responses are clear... [RESULT: B]",
        0.0,
        _PROMETHEUS,
    ),
    Answer(
        "prometheus-2-relative-7b",
        "Feedback: Both responses are clear...Response A. [RESULT] B",
        0.0,
        _PROMETHEUS,
    ),
    Answer("llama-guard-3-8b", "\n\nsafe", {"score": 1.0, "categories": ""}),
    Answer("llama-guard-3-8b", "unsafe\nS2", {"score": 0.0, "categories": "S2"}, _GUARD),
    Answer("llama-guard-3-8b", "\n\nunsafe\nS1,S10", {"score": 0.0, "categories": "S1,S10"}),
    Answer("deepseek-grm-27b", "Analysis: 1 errs.\nScores: \\boxed{3, 8}", 0.0),
    Answer("deepseek-grm-27b", "Analysis: alike.\nScores: \\boxed{10,10}.", 0.5),
    Answer("deepseek-grm-16b", "Scores: \\boxed{ 9, 2 }", 1.0),
    Answer("deepseek-grm-16b", "Scores: \\boxed{8,  7}", 1.0),
    Answer("deepseek-grm-16b", "Scores: \\boxed{ 7 ,8 }", 0.0),
    Answer("deepseek-grm-16b", "Scores: \\[ \\boxed{[8, 8]} \\]", 0.5),
)

WITHOUT_VERDICT = (
    Answer("compass-verifier-3b", "The candidate's answer is", None, "truncated"),
    Answer("compass-verifier-3b", "D", None, "wrong letter"),
    Answer("compass-verifier-7b", "Final Judgment: \\boxed{", None, "truncated"),
    Answer("xverify-7b", "It may be Correct or Incorrect.", None, "both"),
    Answer("xverify-7b", "Corr", None, "truncated"),
    Answer("general-verifier", "Final Decision:", None, "truncated"),
    Answer("general-verifier", "Yes, it is fine.", None, "no decision"),
    Answer("rm-r1-qwen2.5-7b", "<eval> A wins </eval>\n<answer>[[A]]", None, "truncated"),
    Answer("rm-r1-qwen2.5-7b", "<answer>[[A/B]]</answer>", None, "a copy of the task"),
    Answer("rm-r1-deepseek-distilled-7b", "[[A]]", None, "no tags"),
    Answer(
        "nemotron-genrm-49b",
        "[The Begin of Ranking Score]\n\\boxed{9}\n[The End of Ranking Score]",
        None,
        "not on the scale",
    ),
    Answer("nemotron-genrm-49b", "[The Begin of Ranking Score]\n\\boxed{2", None, "truncated"),
    Answer("pandalm-7b", "Response 1 is better.", None, "no verdict in the first line"),
    Answer("pandalm-7b", "12\n\n### Reason: both", None, "garbage"),
    Answer("prometheus-2-7b", "I rate this a perfect 10!", None, _PROMETHEUS),
    Answer("prometheus-2-7b", "Score: 2.5", None, _PROMETHEUS),
    Answer("prometheus-2-7b", "Result: A", None, _PROMETHEUS),
    Answer("prometheus-2-7b", "The score is definitely not 3.", None, _PROMETHEUS),
    Answer("prometheus-2-7b", "So the feedback is [RESULT]", None, "truncated"),
    Answer(
        "prometheus-2-relative-7b",
        "After careful consideration, I select Response B.",
        None,
        _PROMETHEUS,
    ),
    Answer("prometheus-2-relative-7b", "Response C is clearly superior.", None, _PROMETHEUS),
    Answer("llama-guard-3-8b", "I cannot say.", None, "garbage"),
    Answer("llama-guard-3-8b", "unsafe\nS99", None, "no such category"),
    Answer("deepseek-grm-27b", "Scores: \\boxed{11, 3}", None, "not on the scale"),
    Answer("deepseek-grm-27b", "Scores: \\boxed{7}", None, "one score for two"),
    Answer("deepseek-grm-27b", "Scores: \\boxed{7, ", None, "truncated"),
    Answer("deepseek-grm-27b", "It could get \\boxed{9, 2} at first sight, but on", None, "aside"),
    Answer("deepseek-grm-27b", "Scores: \\boxed{[8, 7}", None, "half a bracket"),
    Answer(
        "prometheus-2-7b",
        "The response would deserve a score of 5 if it were correct, but",
        None,
        "aside",
    ),
    Answer("prometheus-2-7b", "The response would deserve a score of 5", None, "aside, truncated"),
    Answer("prometheus-2-7b", "According to Score 3 of the rubric, a response that", None, "aside"),
    Answer("prometheus-2-7b", "It is like the rubric's Score 3", None, "aside, truncated"),
    Answer("prometheus-2-7b", "Good. [RESULT] 4 (score of 5 needs more)", None, "goes on"),
    Answer("prometheus-2-7b", "Good. [RESULT] 4\n(score of 5)", None, "two scores"),
    Answer("prometheus-2-7b", "[RESULT] 4 or [RESULT] 5", None, "two scores"),
    Answer("prometheus-2-7b", "[RESULT] 1-5", None, "the scale"),
    Answer("prometheus-2-7b", "[RESULT] 10", None, "not on the scale"),
    Answer("prometheus-2-relative-7b", "[RESULT] A and B", None, "both"),
    Answer("prometheus-2-relative-7b", "[RESULT] A is what I would say, but", None, "goes on"),
    Answer("compass-verifier-7b", "Maybe \\boxed{A} but wait", None, "goes on"),
    Answer("compass-verifier-7b", "\\boxed{A} or \\boxed{B}", None, "both"),
    Answer("compass-verifier-7b", "A. INCORRECT", None, "letter and word differ"),
    Answer("compass-verifier-7b", "Final Judgment: A would be wrong", None, "goes on"),
    Answer(
        "general-verifier",
        "Is it Final Decision: Yes or Final Decision: No? We",
        None,
        "both, truncated",
    ),
    Answer("general-verifier", "Final Decision: Yes or Final Decision: No", None, "both"),
    Answer("general-verifier", "Final Decision: Yes/No", None, "a copy of the task"),
    Answer("rm-r1-qwen2.5-7b", "<answer>[[A]]</answer> at first sight, but", None, "goes on"),
    Answer(
        "nemotron-genrm-49b",
        "[The Begin of Ranking Score]\n\\boxed{2}\n[The End of Ranking Score]\nBut wait, the",
        None,
        "goes on",
    ),
)
