def make():
    return fw.RuntimeErrorContext()


@fw.with_context(make)
def f():
    raise ValueError("the user's own")


f()
