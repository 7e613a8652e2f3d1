fw.ConcreteComputation.from_bytes(b"\xff\xff")
