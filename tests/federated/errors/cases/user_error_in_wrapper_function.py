def make(fn, parameter_type, unpack, **kwargs):
    raise ValueError("the user's own")


wrapper = fw.ComputationWrapper(make)


@wrapper(np.int32)
def f(x):
    return x
