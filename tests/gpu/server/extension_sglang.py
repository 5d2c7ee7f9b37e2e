# SPDX-License-Identifier: Apache-2.0
"""What the tests ask of SGLang's processes: a plug-in that gives models weights of a sensible size, and
that says what a scheduler's engine runs with."""
import json
import pathlib

NAME = "attnjit_tests"

#: What a model of drafts takes a token's embedding and the model's state behind it to its layers by.
#: It takes the token alone here: its layers are the model's, and so nearly all of its drafts are
#: right, unless its attention is not.
_TOKEN_AND_STATE = ("model.fc.weight", "model.eh_proj.weight")


def install(folder):
    """Writes what an installed wheel would say of this plug-in; `folder` is to be on PYTHONPATH."""
    info = pathlib.Path(folder, f"{NAME}-0.dist-info")
    info.mkdir(parents=True, exist_ok=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 0\n",
                                         encoding="utf-8")
    info.joinpath("entry_points.txt").write_text(
        f"[sglang.srt.plugins]\n{NAME} = extension_sglang:register\n", encoding="utf-8")


def register():
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register("sglang.srt.model_loader.loader.initialize_dummy_weights", weights,
                          HookType.REPLACE)
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.handle_rpc_request", answer,
                          HookType.AROUND)


def weights(model, *_, **__):
    """In place of SGLang's dummy weights, with which all logits tie."""
    import torch
    from extension import fill

    fill(model, called=lambda name: name.replace("model.decoder.", "model.layers.0."))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name in _TOKEN_AND_STATE:
                torch.eye(*weight.shape, out=weight)


def answer(original, scheduler, request):
    """Scheduler's calls from outside: `about` is one of them."""
    scheduler.about = lambda path: pathlib.Path(path).write_text(json.dumps(about(scheduler)),
                                                                 encoding="utf-8")
    return original(scheduler, request)


def about(scheduler):
    """Which backend serves the layers, the cache, and what attnjit's Service counts."""
    import torch

    runner = scheduler.tp_worker.model_runner
    backend = runner.attn_backend
    said = {"impls": {type(backend).__name__: runner.model_config.num_hidden_layers},
            "block_size": runner.page_size, "tokens": scheduler.max_total_num_tokens,
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU",
            "torch": str(torch.__version__)}
    if type(backend).__name__.startswith("Attnjit"):
        from attnjit.integrations import sglang_service

        said["statistics"] = sglang_service.service().statistics()
        said["launches"] = dict(sglang_service.launches)
    return said
