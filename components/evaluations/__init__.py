"""What a model knows without being tuned.

One more kind of evaluation is a folder and its name in `EVALUATIONS` of `components.params.evaluations`. In the folder:
`config.py` with its settings, an EvaluationBlock, as `Evaluation` (no torch), and `evaluation.py` with

- `prepare(folder, block)`: write to data/evaluations/NAME what models are asked; its figures
- `ask(folder, model, tokens, name)`: put that to one model; `contract.Answers`
"""
