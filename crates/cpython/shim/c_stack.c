/* Bounds of the current thread's C stack. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

void stator_stack_bounds(uintptr_t *lowest, size_t *size) {
#if defined(__APPLE__)
    *size = pthread_get_stacksize_np(pthread_self());
    *lowest = (uintptr_t)pthread_get_stackaddr_np(pthread_self()) - *size;
#elif defined(__linux__)
    pthread_attr_t attr;
    void *address;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) {
        return;
    }
    if (pthread_attr_getstack(&attr, &address, size) == 0) {
        *lowest = (uintptr_t)address;
    }
    pthread_attr_destroy(&attr);
#endif
}
