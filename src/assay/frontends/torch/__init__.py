"""The torch front end: `import_fx` gives the symbolic graph, whose ops lower through this package's tables."""

from assay.frontends.torch.dialect import lower_node as lower_node
from assay.frontends.torch.importer import import_fx as import_fx
