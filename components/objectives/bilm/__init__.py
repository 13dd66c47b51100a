"""ELMo's two language models: `block` their settings, `batches` the lanes of text, `objective` loss and samples."""
