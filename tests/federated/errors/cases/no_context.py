with fw.get_context_stack().install(fw.RuntimeErrorContext()):
    fc(lambda: 1)()
