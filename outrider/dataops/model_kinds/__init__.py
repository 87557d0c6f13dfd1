"""Kinds of models: how each is loaded, fed and read.

May import payloads, state.

`loading` makes of a `source.Source` (JSON in ``model_version.source``) a `runner.Runner` (encode records, run
tensors, decode answers) or a plain predictor.
"""
