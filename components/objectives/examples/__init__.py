"""Rows made of text: `stream` one endless stream of documents, `segments` windows of a document and pairs of
neighbours; `windows` are steps drawn together, which every objective's batches give.
"""
