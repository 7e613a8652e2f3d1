def change(ty):
    raise ValueError("the user's own")


fw.transform_type_postorder(fl.to_type([np.int32]), change)
