"""The rows of the op table, by family."""

from assay.targets.ttnn.rows import attention as attention
from assay.targets.ttnn.rows import collectives as collectives
from assay.targets.ttnn.rows import elementwise as elementwise
from assay.targets.ttnn.rows import images as images
from assay.targets.ttnn.rows import movement as movement
from assay.targets.ttnn.rows import positions as positions
from assay.targets.ttnn.rows import products as products
from assay.targets.ttnn.rows import reductions as reductions
