"""Worker processes: one way to start one, to talk with it, and to learn how it ended."""

from assay.processes.endings import Ending as Ending
from assay.processes.endings import WorkerDied as WorkerDied
from assay.processes.endings import WorkerFailed as WorkerFailed
from assay.processes.endings import WorkerRaised as WorkerRaised
from assay.processes.pool import Done as Done
from assay.processes.pool import run_jobs as run_jobs
from assay.processes.running import Nursery as Nursery
from assay.processes.worker import Handler as Handler
from assay.processes.worker import Tell as Tell
from assay.processes.worker import Worker as Worker
from assay.processes.worker import WorkerLimits as WorkerLimits
