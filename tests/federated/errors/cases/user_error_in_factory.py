def make(parameter_type, unpack):
    raise ValueError("the user's own")


f = fw.PolymorphicComputation(make, fw.infer_type)
f(1)
