"""Batches built from text: `segments` cuts documents into examples, `shuffled_text` is one long sequence of all tokens, `streams` are
parallel sequences over it, `batches` has the base classes.
"""
