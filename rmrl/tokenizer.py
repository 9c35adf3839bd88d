"""Loading of tokenizers from a folder or a hub id, for prompts, models and exports."""

# pyright: basic
# transformers' factories are untyped.

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmrl.config.installed import companion_problem, left_out_problem
from rmrl.config.schema import ModelConfig
from rmrl.errors import ConfigError, first_line
from rmrl.startup import quick_imports

_NEED = (
    "need a folder with tokenizer.json (or tokenizer_config.json), or a hub id such as"
    " Qwen/Qwen3-0.6B; set actor_rollout_ref.model.tokenizer_path where the model's own folder has"
    " none"
)


def policy_tokenizer(model: ModelConfig) -> Any:
    """Load a model's tokenizer, with its pad token and chat template. See `load_tokenizer`."""
    path = model.tokenizer_path or model.path or ""
    return load_tokenizer(
        path, trust_remote_code=model.trust_remote_code, chat_template=model.custom_chat_template
    )


def load_tokenizer(path: str, *, trust_remote_code: bool, chat_template: str | None = None) -> Any:
    """Load the tokenizer at `path`. Without a pad token it pads with its end token.

    `chat_template` (Jinja text, or the path of a file that holds it) replaces the tokenizer's.
    Raises ConfigError where nothing can be loaded.
    """
    if not path:
        raise ConfigError(f"data.tokenizer and actor_rollout_ref.model.path: saw {path!r}; {_NEED}")
    folder = Path(path).expanduser()
    looks_local = folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1
    if looks_local and not folder.exists():
        raise ConfigError(f"tokenizer: saw '{path}', which does not exist; {_NEED}")
    if folder.is_dir() and not any(folder.glob("tokenizer*")) and not any(folder.glob("vocab*")):
        names = sorted(entry.name for entry in folder.iterdir())
        content = ", ".join(names[:8]) or "nothing"
        raise ConfigError(f"tokenizer: saw the folder '{path}' holding {content}; {_NEED}")
    try:
        with quick_imports():  # loading imports the configuration of the model as well
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(
                str(folder) if folder.exists() else path, trust_remote_code=trust_remote_code
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        problem = companion_problem(error)
        if not problem and isinstance(error, ModuleNotFoundError):
            problem = left_out_problem(error)
        if problem:
            raise ConfigError(problem) from error
        raise ConfigError(
            f"tokenizer: saw '{path}', which could not be loaded ({type(error).__name__}:"
            f" {first_line(error)}); {_NEED}"
        ) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if chat_template and "{" not in chat_template:
        # Without Jinja every prompt would have the same text, so it can only be the name of a file.
        file = Path(chat_template).expanduser()
        if not file.is_file():
            raise ConfigError(
                f"actor_rollout_ref.model.custom_chat_template: saw {chat_template!r}, which is"
                ' neither Jinja text nor an existing file; need Jinja text such as "{% for m in'
                ' messages %}...{% endfor %}", or a file that holds it'
            )
        chat_template = file.read_text(encoding="utf-8")
    if chat_template:
        tokenizer.chat_template = chat_template
    return tokenizer
