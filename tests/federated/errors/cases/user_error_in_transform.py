def change(block):
    raise ValueError("the user's own")


block = fc(lambda x: (x, x), np.int32).to_building_block()
fw.transform_postorder(block, change)
