fc(max, np.int32)
