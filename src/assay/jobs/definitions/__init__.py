"""The ops of jobs; importing this package enters them."""

from assay.jobs.definitions import beams as beams
from assay.jobs.definitions import calls as calls
from assay.jobs.definitions import images as images
from assay.jobs.definitions import sampling as sampling
from assay.jobs.definitions import sound as sound
from assay.jobs.definitions import speech as speech
from assay.jobs.definitions import stopping as stopping
