# SPDX-License-Identifier: Apache-2.0
"""Classes of configurations that published models bring along as code: their fields become attributes."""
import transformers

#: Fields whose objects have a class of their own.
TEXT_PARTS = ("text_config", "llm_config", "language_config")
#: What such a class is derived from, or called, where a server asks.
BASES = dict.fromkeys(("dots_ocr", "kimi_audio", "Keye", "mimo", "minicpmv"), transformers.Qwen2Config)
CLASSES = {"new": "NewConfig", "gte": "GteConfig"}
NAMES = {"telechat": {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}}


class Fields(dict):
    """An object whose members are attributes, too."""

    def __getattr__(self, name):
        if name not in self:
            raise AttributeError(name)
        return self[name]


def class_of(model_type):
    base = BASES.get(model_type, transformers.PretrainedConfig)

    def part(name, value):
        if name == "block_configs":
            return [Fields({key: Fields(inner) for key, inner in one.items()}) for one in value]
        if name in TEXT_PARTS:
            register(value)
            return transformers.AutoConfig.for_model(**value)
        if isinstance(value, dict) and name in ("vision_config", "visual_tokenizer_config"):
            return transformers.PretrainedConfig(**value)
        return value

    def init(self, **fields):
        fields.pop("model_type", None)
        fields.setdefault("pad_token_id", None)
        if "rope_theta" in fields and "rope_scaling" not in fields:
            fields["rope_parameters"] = {"rope_type": "default", "rope_theta": fields["rope_theta"]}
        base.__init__(self, **{name: part(name, value) for name, value in fields.items()})

    def text(self, *given, **more):
        return next((getattr(self, name) for name in TEXT_PARTS if hasattr(self, name)), self)

    return type(CLASSES.get(model_type, "Own"), (base,), {
        "model_type": model_type, "attribute_map": NAMES.get(model_type, {}), "__init__": init,
        "get_text_config": text})


def register(config, known=()):
    """Makes transformers know a configuration's class, where neither it nor a server (`known`) does."""
    model_type = config["model_type"]
    if model_type not in transformers.CONFIG_MAPPING and model_type not in known:
        transformers.AutoConfig.register(model_type, class_of(model_type))
