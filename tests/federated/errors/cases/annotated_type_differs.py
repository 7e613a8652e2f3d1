computation = fc(lambda x: x, np.int32)
fw.ConcreteComputation(
    computation_proto=computation.to_proto(),
    context_stack=fw.get_context_stack(),
    annotated_type=fl.FunctionType(np.float32, np.int32),
)
