"""`assay targets`: what models can run on here."""

from __future__ import annotations

from assay.cli.output import JsonOption, reporting


def targets(json: JsonOption = None) -> None:
    """List the targets and peers, whether they can be used here, and why not."""
    from assay.errors import NotFound
    from assay.evidence.peers import peer_names, peer_version
    from assay.runtime.targets import probe_target, target_names
    from assay.runtime.writes import writes

    with reporting(json) as report:
        found = {name: probe_target(name) for name in target_names()}
        peers: dict[str, str] = {}
        for name in peer_names():
            try:
                peers[name] = peer_version(name)
            except NotFound as missing:
                peers[name] = missing.message
        rows = [
            (name, "yes" if p.present else "no", p.reason or ", ".join(f"{k} {v}" for k, v in p.details.items()))
            for name, p in found.items()
        ]
        report.table("Targets", ("target", "usable", "details"), rows)
        report.text()
        report.table("Peers (to compare with)", ("peer", "version"), peers.items())
        tracked = writes() is not None
        can = "tells which weights were written" if tracked else "cannot be asked which weights were written"
        report.text()
        report.text(f"The kernel {can}: torch.compile keeps {'what' if tracked else 'nothing that'} is made of them.")
        data = {n: {"present": p.present, "reason": p.reason, "details": dict(p.details)} for n, p in found.items()}
        report.result({"targets": data, "peers": peers, "write_tracking": tracked})
