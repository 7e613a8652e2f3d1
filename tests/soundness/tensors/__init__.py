"""Operations: what decides their shapes, what reads data, what raises, which tensors they take."""
