"""Evaluation of pre-trained models without fine-tuning.

To add a kind of evaluation, write a folder and add its name to `EVALUATIONS` of `components.params.evaluations`. In the folder:
`config.py` with its settings, an EvaluationBlock, as `Evaluation` (no torch), and `evaluation.py` with

- `prepare(folder, block)`: write the items to data/evaluations/NAME; returns figures, the number of items among them
  (`contract.ITEM_COUNTS`). With a setting `task` it is `prepare(folder, block, task, seed)`
- `evaluate(folder, model, tokens, name)`: evaluate one model; returns `contract.Answers`

`minimal_pairs.scoring` has the probability of a text, `files` readers of tables. A measure of which less is better is in
`config.LOWER_IS_BETTER`.
"""
