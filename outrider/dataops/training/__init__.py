"""Training: a version and labelled rows in, a trained version out.

May import state, payloads, labels, datasets, loaders, compression, model_kinds.

`trainer` is the contract: a `Trainer` makes of a `TrainingTask` a `TrainedModel`. Torch modules and Hugging
Face folders are `ModelLearner`s of one loop, which streams rows and resumes in mid-epoch.
"""
