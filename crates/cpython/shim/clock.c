/* The processor time of the current thread. */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>

/* In nanoseconds; 0: the system doesn't say. */
uint64_t stator_thread_nanos(void) {
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
        return 0;
    }
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
