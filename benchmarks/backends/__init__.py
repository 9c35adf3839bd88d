"""Megatron's layouts beside FSDP2: the curve of the example task, and what each process holds.

    python -m benchmarks.backends                        both, about 20 minutes on 2 cores
    python -m benchmarks.backends --only memory          peaks of load, publish and save, per
      process
    python -m benchmarks.backends --only curve           20 steps of examples/arithmetic under every
      layout

curve: the same command with another strategy; sampled with the same seed, so runs stay together
  until rounding turns a token. Seconds of a step's phases are compared with those of FSDP2 in as
  many processes.
memory: peak of each process above what it held before (the kernel's high-water mark), beside the
  bytes of the whole model and of the process's share of it.
"""
