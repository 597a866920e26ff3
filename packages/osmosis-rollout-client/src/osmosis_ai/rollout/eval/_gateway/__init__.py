"""The policy gateway: between the rollouts of a run and any OpenAI-compatible upstream.

It passes calls on and their answers back, byte for byte as far as nothing has to change, and keeps
what each rollout was answered: for the run's numbers, for findings, and for trajectories.
"""
