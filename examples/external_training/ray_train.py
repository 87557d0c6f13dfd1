"""The same with Ray Train: workers learn, the first of them reports and uploads."""

import json
import os
import tempfile

import ray.train
from ray.train import RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
from train import retrain

from outrider.train import Job


def learn(config):
    """Loop of each worker; shards and collectives of your framework belong here."""
    if ray.train.get_context().get_world_rank() != 0:
        return
    with Job.from_event(config["event"]) as job, tempfile.TemporaryDirectory() as folder:
        made = retrain(job, folder)
    ray.train.report({"version": made["version"]})


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        learn,
        train_loop_config={"event": json.loads(os.environ["OUTRIDER_EVENT"])},
        scaling_config=ScalingConfig(num_workers=int(os.environ.get("WORKERS", "1"))),
        run_config=RunConfig(name="census"),
    )
    trainer.fit()
