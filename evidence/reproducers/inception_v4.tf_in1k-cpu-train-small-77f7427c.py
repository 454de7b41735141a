"""inception_v4.tf_in1k on the target cpu: fail_accuracy at accuracy.

inaccurate: model.features.19.branch2_2.conv.weight: max abs 2.56e+04, rel 2.04e+03, 9.25e+18 ulp; 56 of 10752 beyond what is allowed

Run it with Python. It prints what it finds, and ends with code 3 while the failure is there.
"""

from assay.evidence.sweep.reproduce import reproduce

reproduce(
    {'kind': 'model', 'name': 'inception_v4.tf_in1k', 'target': 'cpu', 'mode': 'train', 'size': 'small'},
    None,
)
