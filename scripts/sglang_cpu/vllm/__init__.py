"""Stands in for vLLM, of which SGLang uses one operation on a CPU."""
