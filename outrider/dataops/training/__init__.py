"""Training: a version and labelled rows in, a trained version out.

May import state, payloads, labels, datasets, loaders, compression, model_kinds.

`trainers.train_version` makes a `TrainedModel` of a `TrainingTask`. Torch modules and Hugging Face folders
are `ModelLearner`s of one loop, which streams rows and resumes within an epoch.
"""
