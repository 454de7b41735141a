"""Jobs beside other engines: the same weights, the same input, in turns.

Everybody sits in a process of its own, with the Python that has its package, and does one case after the other in every
round; a figure is the median over the rounds. *Ratio* is the time of the other engine ÷ Assay's: above 1, Assay is
faster. Who lacks a package is left out, and that is said.

    python bench/jobs.py [CONTEST ...] [--case CASE ...] [--rounds N] [--python PATH]

`PATH` is an interpreter that has the other engines (a venv of its own; by default this one). A further engine is a
function in a file of bench/peers and an entry in `ENTRIES`.
"""

from __future__ import annotations

from collections.abc import Mapping

from peers import llama, whisper
from peers.contests import OURS, Contest, Entry, options_of, run_contests

CONTESTS: Mapping[str, Contest] = {
    "transcribe": Contest(whisper.materials, whisper.cases, whisper.judged),
    "generate": Contest(llama.materials, llama.cases),
}

ENTRIES = (
    Entry("transcribe", OURS, "whisper.py:assay"),
    Entry("transcribe", "faster-whisper", "whisper.py:faster_whisper", "faster_whisper"),
    Entry("transcribe", "whisper.cpp", "whisper.py:whisper_cpp", "pywhispercpp"),
    Entry("generate", OURS, "llama.py:assay"),
    Entry("generate", "llama.cpp", "llama.py:llama_cpp", "llama_cpp"),
)

if __name__ == "__main__":
    run_contests(options_of(__doc__, CONTESTS), CONTESTS, ENTRIES)
