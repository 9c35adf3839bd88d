"""What a process of vLLM imports before it builds an engine."""

from tests.fork_server import preloaded

STATE = preloaded(
    "numpy",
    "torch",
    "transformers.models.auto.modeling_auto",
    "vllm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.worker.cpu_worker",
    "rmrl.inference.rollout",
    "rmrl.inference.reward_engines",
)
