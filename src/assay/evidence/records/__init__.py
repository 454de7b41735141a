"""The records of the evidence: one JSON line for each case. Every table, page and chart is a view of these lines."""

from assay.evidence.records.files import Records as Records
from assay.evidence.records.files import append as append
from assay.evidence.records.files import read as read
from assay.evidence.records.schema import FORMAT as FORMAT
from assay.evidence.records.schema import GREEN as GREEN
from assay.evidence.records.schema import STAGES as STAGES
from assay.evidence.records.schema import STATUSES as STATUSES
from assay.evidence.records.schema import Case as Case
from assay.evidence.records.schema import Cause as Cause
from assay.evidence.records.schema import Configuration as Configuration
from assay.evidence.records.schema import Environment as Environment
from assay.evidence.records.schema import OpUse as OpUse
from assay.evidence.records.schema import Output as Output
from assay.evidence.records.schema import Record as Record
from assay.evidence.records.schema import Speed as Speed
from assay.evidence.records.schema import Transfers as Transfers
