"""The price of one training (or decode) step on a fabric.

result = step(load("h100-64-rail"), load_job("job.yaml"))       # step.py
"""
