"""A GRPO step of rmrl against one of TRL's GRPOTrainer, and micro-batches of like length against
padded ones.

    python -m benchmarks.training                      .models/smollm2, 3 rounds, about half an hour
      on 2 cores
    python -m benchmarks.training --quick              .models/tiny-arith, 2 steps a side: does it
      run at all
    python -m benchmarks.training --model .models/tiny-arith --task sums --prompts 32 --n 8
      --max-tokens 8

Both sides get the same checkpoint, rows in the same order, responses per prompt, token limit,
temperature, reward function, optimizer settings, one optimizer step per batch, the same dtypes and
the same cores. Each runs in a process of its own, in turns; steps to warm up are left out. What is
not the same: rmrl samples with vLLM in a process of its own and publishes its weights after each
step, TRL samples with transformers' `generate` on the weights it trains. TRL is given several ways
(micro-batches of all rows and of a quarter, threads that spin or sleep while they wait), and its
fastest one counts. Ratios need a machine on which nothing else runs; the load is noted.

Seconds per step, tokens per second (prompt + response of the step's sequences), peak memory of each
side's processes, and the share of rmrl's step in which no model works. A ratio is their number /
ours of the same round: median [smallest, largest].
"""
