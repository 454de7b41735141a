"""The ONNX front end: `load` gives the symbolic graph, whose ops lower through this package's tables."""

from assay.frontends.onnx.dialect import lower_node as lower_node
from assay.frontends.onnx.importer import import_model as import_model
from assay.frontends.onnx.importer import load as load
from assay.frontends.onnx.importer import read_model as read_model
