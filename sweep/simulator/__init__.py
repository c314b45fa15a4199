"""The simulated server: SGLang's surface over a cost model. Standard library only, Python >= 3.9.

calibration  milliseconds of each phase and acceptance of each position, and what derives from them
decoding     the cycles of one answer: drawn by seed, paced on an absolute schedule
faults       what can be made to go wrong
log          lines of the log, as SGLang writes them
counters     what the server counts over its life
cycles       what each cycle took, as the probe in a real engine writes it
api          SGLang's HTTP calls
main         arguments, load, start

It travels inside the agent's archive and runs as a process of its own, as any server does.
"""
