"""Does everything run on this machine's GPU, and are the numbers right? One command:

    python -m benchmarks.gpu_check                               every check, on a random model that
      it makes itself
    python -m benchmarks.gpu_check --size large --minutes 10 --out benchmarks/results/gpu/h200.json
      a model of 1.1B parameters, as many checks as fit into ten minutes, those with the most news
      first; the same command goes on from the file
    python -m benchmarks.gpu_check --model <folder> --only logprobs packing
    python -m benchmarks.gpu_check --device cpu --size tiny      the same checks where there is no
      GPU; those of CUDA alone are skipped

Needs Python 3.11 or later, torch and transformers; the checks of vLLM, LoRA and flash-attention are
skipped where these are not installed. Each check runs in a process of its own and prints PASS, FAIL
or SKIP with its numbers. Exit code 1 if any check failed, 2 where torch sees no GPU.
"""
