# SPDX-License-Identifier: Apache-2.0
"""attnjit as an attention backend of SGLang: `--attention-backend attnjit`.

The wheel names register() under sglang.srt.plugins, which each process of SGLang calls once it
runs, before it reads its configuration.
"""
from __future__ import annotations

import contextlib
import importlib
import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional

from ._metrics import expose

NAME = "attnjit"
_LISTS = ("ATTENTION_BACKEND_CHOICES", "DETERMINISTIC_ATTENTION_BACKEND_CHOICES",
          "DRAFT_ATTENTION_BACKEND_CHOICES")
_FIELDS = ("attention_backend", "prefill_attention_backend", "decode_attention_backend",
           "prefill_attention_backend_str", "decode_attention_backend_str")
_SERVES_ALL = "triton"
#: Architectures of whose models SGLang's checks refuse that name, and list none.
_LIST_NONE = ("Lfm2", "NemotronH")
_HYBRIDS = "sglang.srt.layers.attention.attention_registry.attn_backend_wrapper"
_DRAFTS = "sglang.srt.speculative.draft_utils.DraftBackendFactory._create_backend"


def register() -> None:
    """Adds the backend to SGLang's lists, and its counters to /metrics. It may be called several
    times."""
    from sglang.srt.layers.attention.attention_registry import (ATTENTION_BACKENDS,
                                                                register_attention_backend)

    lists = _module_of_lists()
    for name in _LISTS:
        allowed = getattr(lists, name, None)
        if allowed is not None and NAME not in allowed:
            allowed.append(NAME)
    if NAME not in ATTENTION_BACKENDS:
        register_attention_backend(NAME)(create)
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        HookRegistry.register(_DRAFTS, with_drafts, HookType.AROUND)
        HookRegistry.register(_checks(), as_one_of_its_own, HookType.AROUND)
        HookRegistry.register(_HYBRIDS, hybrid_as_one_of_its_own, HookType.AROUND)
    expose()


def _module_of_lists() -> Any:
    """Where SGLang's command line has its lists: newer versions have a module for them."""
    try:
        return importlib.import_module("sglang.srt.arg_groups.choices")
    except ModuleNotFoundError:
        return importlib.import_module("sglang.srt.server_args")


def _checks() -> str:
    """What looks at a server's arguments by its model."""
    from sglang.srt.server_args import ServerArgs

    if hasattr(ServerArgs, "_handle_model_specific_adjustments"):
        return "sglang.srt.server_args.ServerArgs._handle_model_specific_adjustments"
    return "sglang.srt.arg_groups.model_hook.handle_model_specific_adjustments"


def as_one_of_its_own(original: Callable[..., Any], arguments: Any, *more: Any) -> Any:
    """A hook around SGLang's checks of models, some of which list the backends that may serve one
    (gpt-oss, Llama 4, Gemma 4, Exaone 4). create() says what this backend does not serve."""
    name = NAME if _architecture(arguments).startswith(_LIST_NONE) else _SERVES_ALL
    with _by_another_name(arguments, name) as named:
        made = original(arguments, *more)
        _refuse_another(arguments, named, name)
    return made


def _architecture(arguments: Any) -> str:
    """The model's, where this backend is asked for."""
    if not _fields(arguments) or arguments.model_path.startswith("instance://"):  # it is not known
        return ""
    if hasattr(arguments, "get_model_config"):
        config = arguments.get_model_config()
    else:
        from sglang.srt.arg_groups.model_override_base import model_config_of

        config = model_config_of(arguments)
    return str(config.hf_config.architectures[0])


def hybrid_as_one_of_its_own(original: Callable[..., Any], runner: Any, *more: Any) -> Any:
    """A hook around what gives hybrid models a backend for their other layers, too: on Blackwell it
    has such a list (Qwen3-Next). Versions look for the name in one of two places."""
    with _by_another_name(runner.server_args), _by_another_name(runner):
        return original(runner, *more)


@contextlib.contextmanager
def _by_another_name(holder: Any, name: str = _SERVES_ALL) -> Iterator[List[str]]:
    """Has this backend go by the name of one of SGLang's own that serves all models, in the fields
    that it gives."""
    import msgspec

    # NOTE: newer versions seal their arguments, which are a msgspec.Struct.
    write = msgspec.Struct if isinstance(holder, msgspec.Struct) else object
    named = _fields(holder)
    for field in named:
        write.__setattr__(holder, field, name)
    try:
        yield named
    finally:
        for field in named:
            write.__setattr__(holder, field, NAME)


def _fields(holder: Any) -> List[str]:
    return [field for field in _FIELDS if getattr(holder, field, None) == NAME]


def _refuse_another(arguments: Any, named: List[str], name: str) -> None:
    """Raises where SGLang has chosen another backend than the one that was asked for (DeepSeek-V4):
    it says so nowhere."""
    from sglang.srt.arg_groups.overrides import resolved_view

    for field in named:
        chosen = getattr(resolved_view(arguments), field)
        if chosen != name:
            flag = "--" + field.replace("_", "-")
            raise ValueError("the attnjit attention backend cannot serve this: SGLang takes "
                             f"{chosen} for this model, whatever is asked for; leave {flag} out")


def create(runner: Any, page_size: Optional[int] = None, **more: Any) -> Any:
    """The backend of a model runner; ValueError says all that it does not serve. `more`: what
    SGLang's own backend of lists of keys takes."""
    from .sglang_backend import AttnjitAttnBackend, list_keys

    if list_keys(runner):
        from .sglang_lists import AttnjitListsAttnBackend

        return AttnjitListsAttnBackend(runner, **more)
    if runner.use_mla_backend:
        from .sglang_mla import AttnjitMLAAttnBackend

        return AttnjitMLAAttnBackend(runner, page_size)
    return AttnjitAttnBackend(runner, page_size)


def with_drafts(original: Callable[..., Any], factory: Any, backend_name: str,
                backend_map: Dict[str, Callable[[], Any]], *args: Any, **more: Any) -> Any:
    """A hook around SGLang's table of the backends of draft models, to which it adds this one."""
    decodes = "decode" in backend_map["triton"].__name__

    def made() -> Any:
        from .sglang_backend import list_keys

        runner = factory.draft_model_runner
        seeds: Dict[str, Any] = {}
        if list_keys(runner):
            seeds["seed_dsa_topk_from_draft_extend"] = factory.seed_dsa_topk_from_draft_extend
        if not decodes:
            backend = create(runner, **seeds)
        elif seeds:
            from .sglang_lists import AttnjitListsMultiStepDraftBackend

            backend = AttnjitListsMultiStepDraftBackend(
                runner, factory.topk, factory.speculative_num_steps, **seeds)
        else:
            from .sglang_drafts import AttnjitMultiStepDraftBackend

            backend = AttnjitMultiStepDraftBackend(create, runner, factory.topk,
                                                   factory.speculative_num_steps)
        # NOTE: newer versions want the name, too.
        stamps = "stamps_children" in inspect.signature(original).parameters
        return (NAME, backend) if stamps else backend

    return original(factory, backend_name, {**backend_map, NAME: made}, *args, **more)
