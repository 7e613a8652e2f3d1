double = fc(lambda x: (x, x))
fl.to_value(double, None)
