"""Models derived from other models (`python -m components.derive NAME`): section `derived`, one stage, a file for each method.

To add a method, write a file with `derive(all_params, name, folder, run) -> metrics`, which saves a model to `folder` with `store.save`
and one more step in its lineage; and a block in `components.params.derived`, a `Way` in the union of `Derived`.
"""
