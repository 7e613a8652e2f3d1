@fc(np.int64, np.float32)
def add(total, value):
    return total


@fc(fl.SequenceType(np.int32))
def f(values):
    return fl.sequence_reduce(values, np.int64(0), add)
