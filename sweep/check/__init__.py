"""What is checked before a sweep: from the facts of a node to lines for people. Pure functions.

line      a line: ok, warning or error, of a subject, with a remedy
facts     what a node answered
node      all lines of a node, from the modules below in their order
access    reaching it and staying on it
gpus      its GPUs, and who else holds or uses them
engine    version, package and its changes, compilers, caches
models    model files, and drafters against their target
storage   reading the model, and room to write
machine   memory, ports, limits
planning  the plan: what is not launched and why
"""
