class Context(fw.SyncContext):
    def invoke(self, comp, arg):
        raise ValueError("the user's own")


with fw.get_context_stack().install(Context()):
    fc(lambda: 1)()
