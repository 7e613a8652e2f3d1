"""From a traced call to a `torch.export.ExportedProgram`.

`recording` has Stator trace a call of the function and takes its one graph, with what it does
besides; `programs` has `torch.export` make a program of a module that runs this graph.
"""
