"""The networks, a folder per family: nn.Modules only, no training code. `store` builds, saves and loads them.

To add a family, add a folder and its name in `ARCHITECTURES` of `components.params.models`. The folder has `config.py` with the
settings, an ArchitectureBlock, as `Architecture` (without torch); `model.py` with a LanguageModel (interface and shapes in
`contract.py`), built from (settings, tokenizer), as `Model`; `hub.py` with `LAYOUTS` if `transformers` has the family; and
`decoding.py` with `Decoding`, whose interface is in `components.generate`, if it generates text from left to right. `common` has the
code that families share; a family imports no other one.
"""
