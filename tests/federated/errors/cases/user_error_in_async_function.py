@fw.with_context(fw.RuntimeErrorContext)
async def f():
    raise ValueError("the user's own")


async def main():
    await f()


coroutine = main()
try:
    coroutine.send(None)
finally:
    coroutine.close()
