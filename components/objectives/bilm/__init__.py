"""ELMo's two language models: `config` has the settings, `batches` the streams of text, `objective` loss and samples."""
