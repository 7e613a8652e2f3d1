"""Stator beside eager PyTorch and `torch.compile`, in one run: `python -m bench`.

`measure` holds the clocks, `cases` what is compiled, `worker` one measurement in a process of its
own, `report` the Markdown table, `__main__` the run.
"""
