fc(np.int32)(5)
