@fc(np.int32)
def average(x):
    x
