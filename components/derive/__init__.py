"""Models derived from other models (`python -m components.derive NAME`): section `derived`, one stage, a file for each
way.

One more way is a file here with `derive(all_params, name, folder, run) -> metrics`, which writes a model to `folder` by `store.save`
with one more step in its lineage; a block in `components.params.derived`, a `Way` that says what it is done on, in the union of `Derived`.
"""
