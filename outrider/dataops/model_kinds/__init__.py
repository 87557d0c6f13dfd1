"""Kinds of models: how each is loaded, fed and read.

May import payloads, state.

A version is made of a `source.Source` (JSON in ``model_version.source``): torch module, Hugging Face
folder, ONNX file, function or endpoint, with an adapter, a recipe, and whom it was adapted from. `loading`
makes of it a `runner.Runner` (encode records, run tensors, decode answers) or a plain predictor.
"""
