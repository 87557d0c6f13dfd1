"""The same as a task of Airflow: the receiver of the event triggers this DAG with it.

POST it to ``/api/v2/dags/outrider_census/dagRuns`` as ``{"conf": {"event": EVENT}, "logical_date": null}``.
"""

import json
import tempfile

from airflow.sdk import dag, get_current_context, task


@dag(schedule=None, catchup=False, max_active_runs=1)
def outrider_census():
    """Train the census model for the job of an event."""

    @task(retries=2)
    def train():
        """Goes on after a retry: what was fetched and sent is there."""
        from train import retrain

        from outrider.train import Job

        event = get_current_context()["dag_run"].conf["event"]
        with Job.from_event(json.dumps(event)) as job, tempfile.TemporaryDirectory() as folder:
            return retrain(job, folder)["version"]

    train()


outrider_census()
