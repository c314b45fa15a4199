"""Before a server starts: its GPUs are chosen, claimed, and free of other people's processes."""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional, Sequence

from sweep.agent import claim, gpus, procs, trials, wire
from sweep.agent.holder import Holder
from sweep.agent.journal import Journal, utc_now

_POLL_S = 0.5


class Ended(Exception):
    """The launch is over: one of wire.OUTCOME_ENDS, and a sentence about it."""

    def __init__(self, end: str, detail: Optional[str] = None) -> None:
        super().__init__(end, detail)
        self.end = end
        self.detail = detail


class Admission:
    """Lets a launch in, or raises Ended: claim_timeout, claim_failed, or the reason to stop."""

    def __init__(self, doc: wire.LaunchDoc, journal: Journal, stop: trials.StopSignal) -> None:
        self._doc = doc
        self._journal = journal
        self._stop = stop

    def choose(self) -> List[gpus.Gpu]:
        """Return the GPUs that the launch asks for; an unknown one ends it."""
        try:
            return gpus.select(gpus.list_gpus(), self._doc.gpus)
        except gpus.GpuError as problem:
            raise Ended("error", str(problem)) from problem

    def claim(
        self, chosen: Sequence[gpus.Gpu], directory: str, ident: wire.AgentIdent
    ) -> claim.Claim:
        """Take the locks of the chosen GPUs."""
        owner = self._doc.owner
        holder = Holder(
            user=owner.user,
            host=owner.host,
            sweep=owner.sweep,
            directory=directory,
            nonce=self._doc.nonce,
            pid=ident.pid,
            start_ticks=ident.start_ticks,
            boot_id=ident.boot_id,
            since_utc=utc_now(),
        )
        candidate = claim.Claim(holder)
        names = claim.resources(chosen)

        def held() -> Optional[str]:
            try:
                other = candidate.take(claim.directory(), names)
            except claim.ClaimError as problem:
                raise Ended("claim_failed", str(problem)) from problem
            if other is None:
                return None
            return "%s is claimed by %s" % (other.resource.replace("gpu-", "", 1), other.reason)

        self._wait_while(held, lambda reason: self._journal.event("claim_wait", owner=reason))
        return candidate

    def wait_until_unused(self, chosen: Sequence[gpus.Gpu]) -> Dict[str, float]:
        """Wait until nobody computes on the chosen GPUs; returns their used memory [MiB]."""
        if not chosen:
            return {}
        uuids = {gpu.uuid for gpu in chosen}
        users: List[Dict[str, object]] = []

        def used() -> Optional[str]:
            pids = sorted({p.pid for p in gpus.list_processes() if p.gpu_uuid in uuids})
            users[:] = [
                {
                    "pid": pid,
                    "user": procs.user_name(procs.user_id(pid)),
                    "name": procs.name_of(pid),
                }
                for pid in pids
            ]
            who = ["pid %(pid)s (%(name)s, user %(user)s)" % user for user in users]
            return "our GPUs are in use by " + ", ".join(who) if who else None

        self._wait_while(used, lambda _: self._journal.event("busy", processes=list(users)))
        return {
            gpu.uuid: gpu.memory_used_mib
            for gpu in gpus.list_gpus()
            if gpu.uuid in uuids and gpu.memory_used_mib is not None
        }

    def _wait_while(self, taken: Callable[[], Optional[str]], tell: Callable[[str], None]) -> None:
        """Ask until nobody is in the way, for claim_s at most; each new reason is told once."""
        until_s = time.monotonic() + self._doc.deadlines.claim_s
        told: Optional[str] = None
        while True:
            reason = taken()
            if reason is None:
                return
            if reason != told:
                tell(reason)
                told = reason
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise Ended("claim_timeout", reason)
            self._stop.event.wait(min(_POLL_S, left_s))
            if self._stop.reason is not None:
                raise Ended(self._stop.reason)
