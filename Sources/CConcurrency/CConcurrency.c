#include "CConcurrency.h"

// What Swift's runtime has for this, from swift/Runtime/Concurrency.h: a function that is called in the place of its own.
typedef __attribute__((swiftcall)) void (*original_t)(void *job);
extern __attribute__((swiftcall)) void (*swift_task_enqueueGlobal_hook)(void *job, original_t original);

static void (*taker)(void *job, void *context);
static void *taker_context;

static __attribute__((swiftcall)) void enqueue(void *job, original_t original) {
    (void)original;
    taker(job, taker_context);
}

void holdfast_take_global_jobs(void (*take)(void *job, void *context), void *context) {
    taker = take;
    taker_context = context;
    swift_task_enqueueGlobal_hook = enqueue;
}
