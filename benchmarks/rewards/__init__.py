"""What sharing, gates, memory and the cache of the reward layer are worth, as ratios from one run.

    python -m benchmarks.rewards --judge .models/smollm2 --scalar .models/ms-marco-minilm --embedder
    .models/all-minilm

sharing   two judges on one checkpoint against one judge that asks the union of their requests
models    one to four different models: time of a step (load, wake, score, put away) and peak
  memory, by how engines are put away
plain     the same four models without rmrl: each in a program of its own, one after another
savings   a gate that closes part of the rows, equal responses, a cache that knows all of them

Sides take turns. Every batch has texts of its own, told apart near their beginning, so that no
engine remembers them from a batch before; the shared instructions of a judge may be remembered on
every side alike.
"""
