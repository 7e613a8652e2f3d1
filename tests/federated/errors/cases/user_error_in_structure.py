def leaf(ty):
    raise ValueError("the user's own")


fw.structure_with_type(leaf, fl.to_type([np.int32, {"a": np.int32}]))
