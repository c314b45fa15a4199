"""What every column of the table means: definition, unit and source, in the table's order."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHARE_PREFIX = "p_"
SHARE_COLUMN = re.compile(rf"{SHARE_PREFIX}([1-9]\d*)")
ARGUMENT_PREFIX = "arg_"


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, pandas type, unit, definition and where that comes from."""

    name: str
    dtype: str
    definition: str
    unit: str | None = None
    source: str = "sweep"


_E3 = "EAGLE-3, arXiv 2503.01840, section 4"
_LATENCY = "vLLM benchmarking docs, latency metrics"
_ACCEPTANCE = "vLLM speculative decoding docs, acceptance metrics"
_PROBE = "the instrument in the engine; empty where none ran"
_MEASURED = "over the measured requests that were answered without an error"
_LO = "Lower end of the 95 % interval of {}, resampled by prompt and by window."
_HI = "Upper end of the 95 % interval of {}, resampled by prompt and by window."
_LO_PAIRED = "Lower end of the 95 % interval of {}, windows resampled and prompts paired."
_HI_PAIRED = "Upper end of the 95 % interval of {}, windows resampled and prompts paired."

IDENTITY = (
    Column("sweep_id", "string", "The sweep that measured the row."),
    Column("trial_id", "string", "Identity of configuration, workload, concurrency and launch."),
    Column("launch_id", "string", "Identity of the server process that was planned for the trial."),
    Column("role", "string", "Why the launch is in the plan: main, baseline_first, baseline_last, "
           "unprofiled (a main one again without the probe, which does not rank)."),
    Column("attempt", "Int64", "Which start of the launch the row shows; empty: never started."),
    Column("node", "string", "The machine of the launch; rows of different nodes do not rank."),
    Column("engine", "string", "The kind of server."),
    Column("engine_version", "string", "Version of the server, as the node reported it."),
    Column("configuration_id", "string", "Identity of what is compared."),
    Column("configuration", "string", "Short name of what is compared."),
    Column("is_baseline", "boolean", "Whether the target decodes without speculation."),
    Column("arm", "string", "Everything but speculation; rows of an arm share a baseline."),
    Column("variant", "string", "Name of the bundle of environment and arguments."),
    Column("algorithm", "string", "Speculative algorithm; empty: none."),
    Column("num_steps", "Int64", "Draft steps in a cycle.", "steps"),
    Column("topk", "Int64", "Branches per draft step; 1 is a chain.", "branches"),
    Column(
        "num_draft_tokens",
        "Int64",
        "Draft tokens as the experiment asks for them; empty: left to `auto`, or several asked "
        "values became one.",
        "tokens",
    ),
    Column(
        "effective_num_draft_tokens",
        "Int64",
        "Draft tokens in a cycle as the engine counts them: what the server said it runs with, or, "
        "if it says nothing, what its rules make of the experiment.",
        "tokens",
    ),
    Column("effective_num_steps", "Int64", "Draft steps that the server said it runs with.",
           "steps"),
    Column("effective_topk", "Int64", "Branches that the server said it runs with.", "branches"),
    Column("settings_note", "string", "Settings that the server changed: what was asked and what "
           "is in effect."),
)  # fmt: skip

OUTCOME = (
    Column("workload", "string", "Name of the prompts with their output rule and sampling."),
    Column("concurrency", "Int64", "Requests in flight, in a closed loop.", "requests"),
    Column("state", "string", "ok, partial, failed, skipped_invalid, pruned, interrupted, "
           "not_run or planned; only ok rows rank."),
    Column("failure_class", "string", "Why the trial, or its launch, failed; empty: it did not."),
    Column("reason", "string", "What is known of the failure, or the rule that skipped the row."),
    Column("flags", "string", "Doubts about the row, separated by blanks; see the list of flags."),
    Column("windows", "Int64", "Complete windows: repeats of the trial in which every request "
           "ended.", "windows"),
    Column("requests_ok", "Int64", "Measured requests answered without an error.", "requests"),
    Column("requests_error", "Int64", "Measured requests that failed; they are in no statistic of "
           "latency or rate.", "requests"),
)  # fmt: skip

RATES = (
    Column(
        "output_tok_s",
        "Float64",
        "Output throughput: output tokens ÷ window time, as the ratio of their sums over the "
        "complete windows. Window time is from the first request sent to the last token. Tokens "
        "are those the engine counts, never chunks.",
        "tokens/s",
        _LATENCY,
    ),
    Column("output_tok_s_lo", "Float64", _LO.format("output_tok_s"), "tokens/s"),
    Column("output_tok_s_hi", "Float64", _HI.format("output_tok_s"), "tokens/s"),
    Column(
        "decode_tok_s",
        "Float64",
        "Decode rate of one stream: tokens after the first output chunk ÷ time after it, as the "
        "ratio of their sums over the complete windows. Prefill and queueing are not in it.",
        "tokens/s",
    ),
    Column("decode_tok_s_lo", "Float64", _LO.format("decode_tok_s"), "tokens/s"),
    Column("decode_tok_s_hi", "Float64", _HI.format("decode_tok_s"), "tokens/s"),
    Column("ttft_s_p50", "Float64", f"Median time from sending a request to its first streamed "
           f"output, {_MEASURED}.", "s", _LATENCY),
    Column("tpot_s_p50", "Float64", f"Median time per output token after the first: (last output "
           f"- first output) ÷ (output tokens - 1), {_MEASURED}; one-token answers have none.",
           "s/token", _LATENCY),
    Column("itl_s_p50", "Float64", f"Median gap between consecutive streamed outputs, over all "
           f"gaps {_MEASURED}. An output may hold several tokens.", "s", _LATENCY),
    Column("itl_s_p99", "Float64", "99th percentile of the same gaps, by linear interpolation.",
           "s", _LATENCY),
)  # fmt: skip

COUNTS = (
    Column("output_tokens", "Int64", f"Output tokens, summed {_MEASURED}.", "tokens"),
    Column("cycles", "Int64", f"Drafting-verification cycles C, summed {_MEASURED}. Flag "
           "cycles_estimated: derived from other counts.", "cycles", _E3),
    Column("drafted_tokens", "Int64", f"Draft tokens D sent to verification, root excluded, "
           f"summed {_MEASURED}.", "tokens", _ACCEPTANCE),
    Column("accepted_tokens", "Int64", f"Draft tokens A that were kept, bonus excluded, summed "
           f"{_MEASURED}.", "tokens", _ACCEPTANCE),
    Column("accept_length", "Float64", "τ = 1 + A/C, the bonus token included; from 1 to steps + "
           "1. Ratio of sums.", "tokens/cycle", f"{_E3}; {_ACCEPTANCE}"),
    Column("acceptance_rate", "Float64", "A/D, the bonus in neither. Not comparable between "
           "chains and trees.", "fraction", _ACCEPTANCE),
)  # fmt: skip

_CYCLES = "mean over the cycles of the complete windows"
_DEVICE = "on the device, mean over the cycles whose interval to the next is known"

PHASES = (
    Column("timed_cycles", "Int64", "Cycles of the batch, in the complete windows, that the "
           "instrument inside the engine recorded on its first rank.", "cycles", _PROBE),
    Column("draft_ms", "Float64", f"Draft steps of a cycle, {_DEVICE}.", "ms/cycle", _PROBE),
    Column("verify_ms", "Float64", f"The target's verification in a cycle, {_DEVICE}.", "ms/cycle",
           _PROBE),
    Column("extend_ms", "Float64", f"The draft's extension by what was accepted, {_DEVICE}.",
           "ms/cycle", _PROBE),
    Column("other_ms", "Float64", "The rest of a cycle: cycle_ms without the three phases.",
           "ms/cycle", _PROBE),
    Column("cycle_ms", "Float64", "Interval between the starts of consecutive cycles on the "
           "device; cycles that a prefill or a pause follows have none and are left out.",
           "ms/cycle", _PROBE),
    *(Column(f"{name}_se_ms", "Float64", f"Standard error of {name}_ms over these cycles, taken as "
             "independent; the weight of the row where costs are fitted.", "ms/cycle", _PROBE)
      for name in ("draft", "verify")),
    *(Column(f"host_{name}_ms", "Float64", f"Time that the host spent in {call}, {_CYCLES}. The "
             "device works on after an asynchronous call has returned.", "ms/cycle", _PROBE)
      for name, call in (("draft", "the call of the draft steps"),
                         ("verify", "the call of the verification"),
                         ("extend", "the call of the draft's extension"),
                         ("cycle", "the call of the whole cycle"))),
    Column("rank_spread_ms", "Float64", "Largest difference between ranks of the mean time of a "
           "phase; empty with one rank.", "ms/cycle", _PROBE),
    Column("context_tokens", "Float64", f"Lengths of the sequences of the batch at the start of a "
           f"cycle, summed, {_CYCLES}.", "tokens", _PROBE),
    Column("verified_tokens", "Float64", "Tokens verified for each request in a cycle, the root "
           f"included, {_CYCLES}.", "tokens", _PROBE),
    Column("phase_clock", "string", "What timed the phases: cuda (device events), wall (the host, "
           "on devices that work synchronously) or simulated (a cost model).", None, _PROBE),
    Column("instrument_tok_s", "Float64", "Decode rate of one stream by the instrument alone: "
           "tokens of the cycles, bonus included, ÷ the time of their requests. To be compared "
           "with decode_tok_s.", "tokens/s", _PROBE),
    Column("instrument_accept_length", "Float64", "1 + accepted ÷ requests, both summed over the "
           "recorded cycles. To be compared with accept_length.", "tokens/cycle", _PROBE),
    *(Column(f"timer_{name}_ms", "Float64", f"{what} by the engine's own timer, over the same "
             f"cycles: seconds in its metrics ÷ timed_cycles. To be compared with {name}_ms.",
             "ms/cycle", "SGLang's metrics from 0.5.11 on, of spec V2; empty elsewhere")
      for name, what in (("draft", "Draft steps"), ("verify", "Verification"),
                         ("extend", "The draft's extension"))),
    Column("server_note", "string", "Where the server's own counters differ from the counts of its "
           "answers, in words."),
    Column("instrument_note", "string", "What the flags about the instrument rest on, in words.",
           None, _PROBE),
)  # fmt: skip

_TRACE = (
    "the server's own profiler, a few steps outside the measured windows; empty where not asked"
)

TRACE = (
    Column("trace_scope", "string", "Which steps the shares are of: verify (the target's "
           "verification), decode (steps without speculation), whole (all that was traced, as the "
           "trace does not name its steps).", None, _TRACE),
    Column("trace_source", "string", "What the shares rest on: kernels of the device; where the "
           "trace has none, operators of the host, each without those inside it.", None, _TRACE),
    Column("trace_steps", "Int64", "Steps that the shares are of; empty: the trace does not name "
           "them.", "steps", _TRACE),
    *(Column(f"trace_{kind}_share", "Float64", f"Share of the time of these steps {what}.",
             "fraction", _TRACE)
      for kind, what in (
          ("communication", "in which nothing but communication ran (all-reduce and the like)"),
          ("attention", "in attention"),
          ("experts", "in the work of experts (routing and grouped matrix products)"),
          ("dense", "in other matrix products"),
          ("other", "in all other kernels or operators"),
          ("idle", "in which nothing ran on the device, or no operator on the host"))),
    Column("trace_note", "string", "Why there is no trace, or what is missing of it.", None,
           _TRACE),
)  # fmt: skip

COMPARISON = (
    Column(
        "break_even_accept_length",
        "Float64",
        "τ* = cycle time ÷ the arm's baseline time per token, at the same workload and "
        "concurrency. The cycle is cycle_ms where the instrument measured it and agrees with the "
        "client, else as the client sees it: accept length ÷ decode rate of a stream, which makes "
        "τ ÷ τ* the speed-up of decoding alone.",
        "tokens/cycle",
    ),
    Column(
        "speedup_by_cycle",
        "Float64",
        "τ ÷ τ* with the measured cycle_ms: the speed-up that accept length and cycle time mean. "
        "speedup is measured without the instrument and must agree.",
        "ratio",
    ),
    *(
        Column(
            f"{name}_headroom",
            "Float64",
            f"Speed-up over the arm's baseline if {name}_ms were nothing and the rest stayed: the "
            "most that work on it can bring. Below 1, nothing that is done there alone pays.",
            "ratio",
        )
        for name in ("draft", "verify", "extend", "other")
    ),
    Column(
        "batching_efficiency",
        "Float64",
        "verified_tokens × the baseline's time per token ÷ verify_ms: how many times cheaper it is "
        "to verify tokens together than to decode them one by one.",
        "ratio",
    ),
    Column(
        "speedup",
        "Float64",
        "output_tok_s ÷ that of the arm's baseline without speculation, at the same workload, "
        "concurrency and node; first and last baseline pooled. Baselines are 1 by definition.",
        "ratio",
        _E3,
    ),
    Column("speedup_lo", "Float64", _LO_PAIRED.format("speedup"), "ratio"),
    Column("speedup_hi", "Float64", _HI_PAIRED.format("speedup"), "ratio"),
    Column(
        "speedup_vs_default",
        "Float64",
        "output_tok_s ÷ that of the default arm's baseline: a better environment counts here, "
        "and is not sold as better speculation.",
        "ratio",
    ),
    Column("speedup_vs_default_lo", "Float64", _LO_PAIRED.format("speedup_vs_default"), "ratio"),
    Column("speedup_vs_default_hi", "Float64", _HI_PAIRED.format("speedup_vs_default"), "ratio"),
    Column(
        "vs_default_variant",
        "Float64",
        "output_tok_s ÷ that of the same configuration in the variant `default`: equal steps, "
        "branches, draft tokens and swept arguments, at the same workload, concurrency and node; "
        "launches of one configuration pooled.",
        "ratio",
    ),
    Column("vs_default_variant_lo", "Float64", _LO_PAIRED.format("vs_default_variant"), "ratio"),
    Column("vs_default_variant_hi", "Float64", _HI_PAIRED.format("vs_default_variant"), "ratio"),
    Column(
        "vs_best",
        "Float64",
        "output_tok_s ÷ that of the fastest configuration that ended ok on the same node, at the "
        "same workload and concurrency; launches of one configuration pooled. An interval that "
        "reaches 1 means that the two cannot be told apart.",
        "ratio",
    ),
    Column("vs_best_lo", "Float64", _LO_PAIRED.format("vs_best"), "ratio"),
    Column("vs_best_hi", "Float64", _HI_PAIRED.format("vs_best"), "ratio"),
    Column(
        "vs_scan",
        "Float64",
        "Only for a launch that confirms a scan: its output_tok_s ÷ that of the same configuration "
        "in the scan; 1 means that the shared server changed nothing.",
        "ratio",
    ),
    Column("vs_scan_lo", "Float64", _LO_PAIRED.format("vs_scan"), "ratio"),
    Column("vs_scan_hi", "Float64", _HI_PAIRED.format("vs_scan"), "ratio"),
    Column("drift", "Float64", "Only for the last baseline: its output_tok_s ÷ that of the first "
           "baseline of the arm; 1 means that the node did not change.", "ratio"),
    Column("drift_lo", "Float64", _LO_PAIRED.format("drift"), "ratio"),
    Column("drift_hi", "Float64", _HI_PAIRED.format("drift"), "ratio"),
    Column("probe_difference_tok_s", "Float64", "Only for the configuration that was launched "
           "without the probe too: output_tok_s minus that without it; below 0, the probe costs.",
           "tokens/s"),
    Column("probe_difference_tok_s_lo", "Float64", _LO_PAIRED.format("probe_difference_tok_s"),
           "tokens/s"),
    Column("probe_difference_tok_s_hi", "Float64", _HI_PAIRED.format("probe_difference_tok_s"),
           "tokens/s"),
    Column(
        "same_as_baseline_share",
        "Float64",
        "Share of measured answers whose text is identical to the arm's baseline's most frequent "
        "answer to the same prompt, at temperature 0. A baseline below 1 does not repeat itself.",
        "fraction",
    ),
)  # fmt: skip

RUN = (
    Column("load_s", "Float64", "From the start of the server process to its first generated "
           "token; shared by all trials of a launch.", "s"),
    Column("wall_s", "Float64", "From the first event of the trial to its end, warm-up included.",
           "s"),
    Column("prompt_hash", "string", "Identity of the workload's prompts, in order."),
    Column("started_utc", "string", "When the trial began, by the node's clock; when it never "
           "began, when its launch was to start."),
)  # fmt: skip

FLAGS = {
    "errors": "At least one measured request failed.",
    "short_output": "More than 5 % of the answers have less than a tenth of the tokens asked "
    "(with ignore_eos: fewer than asked).",
    "speculation_ineffective": "Accept length at most 1.05: hardly a draft token is accepted; "
    "draft and target may not match.",
    "cycles_estimated": "The engine does not report cycles; they are derived from other counts.",
    "some_undrafted": "Some answers report no counts of drafting, as an engine does for answers "
    "generated without a draft; accept length and acceptance are of the other answers.",
    "cached_prompt": "More than a tenth of the prompt tokens came from a cache: time to first "
    "token and throughput flatter.",
    "cache_unknown": "The engine did not confirm that its cache was flushed.",
    "throttled": "In the windows the clock of a GPU was more than 5 % below its best in other rows "
    "of the same workload, concurrency and node, and the GPU reported why (power, heat, a fault): "
    "the configuration can do better than the row says.",
    "one_prompt": "One prompt only: nothing is known of other prompts.",
    "few_windows": "Fewer complete windows than asked, or fewer than three: the interval is weak "
    "or missing.",
    "wide_interval": "The most windows allowed were measured, and the 95 % interval of their mean "
    "is still wider than repeats.relative_ci asks.",
    "drifted": "Only for the last baseline: its throughput differs from the first one's by more "
    "than 5 %, and the interval of that, where known, is clear of no change: smaller differences "
    "between rows may be the node's.",
    "output_differs": "At temperature 0 some answers differ from the baseline's.",
    "settings_changed": "The server said that it runs with other settings than were asked "
    "(settings_note): the row is of what it runs with.",
    "settings_unknown": "The server did not say which settings it runs with.",
    "without_graph": "The server decoded batches outside its CUDA graphs, which is slower: there "
    "were none, or the batch was larger than they were captured for.",
    "steps_unproven": "The server said that this step count was in force, before and after the "
    "windows, and no recorded cycle shows that it was so within them.",
    "phases_not_loaded": "The cycles were to be timed, and no process of the engine said that it "
    "does: there are no phases.",
    "phases_incompatible": "The instrument does not fit this engine everywhere; what it could not "
    "measure is empty.",
    "phases_idle": "The instrument was armed and saw no cycle of this trial.",
    "cycles_missing": "The instrument did not record every cycle: means are of the others.",
    "instrument_disagrees": "The instrument's own tokens/s, accept length or cycles differ by more "
    "than 5 % from what the client measured: its times are not to be trusted, and nothing is "
    "derived from them.",
    "server_disagrees": "The server's own counters of output tokens or cycles grew otherwise than "
    "the answers of the windows say, by more than 1 %: it served others, or counts differently.",
    "probe_slows": "Without the probe the configuration was more than 5 % faster, by an interval "
    "clear of 0 and by more than the baseline drifted: what was measured with it is too slow.",
    "trace_missing": "A trace of the server's profiler was asked for and there is none "
    "(trace_note); nothing that was measured depends on it.",
    "engine_patched": "The engine's installed sources hold a profiler made by hand, which runs "
    "too: what it costs is in every figure.",
    "simulated": "The server was simulated: the row says nothing of real hardware.",
}
"""Every flag and what it means."""

INSTRUMENT_FLAGS = (
    "phases_not_loaded", "phases_incompatible", "phases_idle", "cycles_missing",
    "instrument_disagrees", "engine_patched",
)  # fmt: skip
"""Those that rest on what the column instrument_note says."""


def share_column(position: int) -> Column:
    """The column p_k: how often at least k draft tokens of a cycle were accepted."""
    return Column(
        f"{SHARE_PREFIX}{position}",
        "Float64",
        f"Share of cycles that accepted at least {position} draft tokens, by the engine's own "
        "counts of each answer, else by the recorded cycles of a single request; empty where "
        "neither is known.",
        "fraction",
        "vLLM metrics, per-position acceptance",
    )


def argument_column(name: str, dtype: str = "string") -> Column:
    """The column of a swept engine argument; numbers keep a numeric type."""
    return Column(f"{ARGUMENT_PREFIX}{name}", dtype, f"Value of the engine argument {name}.")


def table_columns(arguments: tuple[Column, ...], positions: int) -> tuple[Column, ...]:
    """Every column of a table with these swept arguments and p_1 to p_`positions`, in order."""
    shares = tuple(share_column(position) for position in range(1, positions + 1))
    return (
        *IDENTITY, *arguments, *OUTCOME, *RATES, *COUNTS, *shares, *PHASES, *TRACE, *COMPARISON,
        *RUN,
    )  # fmt: skip


_FIXED = {column.name: column for column in table_columns((), 0)}


def entry(name: str) -> Column:
    """The glossary entry of a column of the table. Raises KeyError for any other name."""
    if name in _FIXED:
        return _FIXED[name]
    if share := SHARE_COLUMN.fullmatch(name):
        return share_column(int(share[1]))
    if name.startswith(ARGUMENT_PREFIX):
        return argument_column(name.removeprefix(ARGUMENT_PREFIX))
    raise KeyError(name)
