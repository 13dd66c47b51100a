"""Characters read, subwords asked for: `block` its settings, `vocabulary` the subwords, `batches` the rows, `objective` loss, samples."""
