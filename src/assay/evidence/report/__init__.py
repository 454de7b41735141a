"""Reports: pages, tables and charts that are views of records, and check themselves."""

from assay.evidence.report.base import gathered as gathered
from assay.evidence.report.readme import write_page as write_page
from assay.evidence.report.readme import write_readme as write_readme
from assay.evidence.report.write import FORMS as FORMS
from assay.evidence.report.write import Report as Report
from assay.evidence.report.write import make_report as make_report
from assay.evidence.report.write import uncollected as uncollected
from assay.evidence.report.write import write as write
