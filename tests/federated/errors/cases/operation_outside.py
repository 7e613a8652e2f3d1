fl.federated_value(1, fl.SERVER)
