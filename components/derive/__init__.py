"""A model made of a model (`python -m components.derive NAME`): one section, `derived`, one stage, a file a way.

One more way is a file here with `derive(all_params, name, folder, run) -> metrics`, which writes a model to `folder` by `store.save`
with one more step in its lineage; a block in `components.params.derived`, a `Way` that says what it is done on, in the union of `Derived`.
"""
