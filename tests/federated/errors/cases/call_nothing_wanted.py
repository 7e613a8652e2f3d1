@fc
def one():
    return 1


one(1)
