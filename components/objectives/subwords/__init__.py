"""Characters read, subwords asked for: `config` its settings, `vocabulary` the subwords, `batches` the rows, `objective` loss, samples."""
