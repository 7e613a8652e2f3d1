@fc(np.int32)
class F:
    pass
