@fw.trace
def f(x):
    raise ValueError("the user's own")


f(1)
