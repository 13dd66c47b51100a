"""The networks, a folder a family: nn.Modules only, no training code. `store` builds, saves and loads them.

One more family is one folder and its name in `ARCHITECTURES` of `components.params.models`. In the folder:
`config.py` with its settings, an ArchitectureBlock, as `Architecture` (no torch); `model.py` with a LanguageModel
(`contract.py` says what it gives, with shapes), built from (settings, tokenizer), as `Model`; where `transformers`
has it `hub.py` with `LAYOUTS`, and where it writes from left to right `decoding.py` with `Decoding`, of which `components.generate`
says what it gives. What families share is in `common`; a family imports no other one.
"""
