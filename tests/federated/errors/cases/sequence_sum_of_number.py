@fc(np.int32)
def f(x):
    return fl.sequence_sum(x)
