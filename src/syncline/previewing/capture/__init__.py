"""What runs inside the captured process: torch with fake tensors, a fake CUDA and a fake world; nothing of syncline.

Only `python -m syncline.previewing.capture SPEC` imports this; the rest of `preview` reads the file it writes.
"""
