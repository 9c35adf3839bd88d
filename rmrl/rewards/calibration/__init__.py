"""Maps from a reward's scores to the probability that a person calls the response good, and what
they make known about the reward's verdicts."""
