"""ELMo's two language models: `config` their settings, `batches` the streams of text, `objective` loss and samples."""
