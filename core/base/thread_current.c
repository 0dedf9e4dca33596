/* The calling thread's state, apart from thread.c, which uses host memory, which uses the calling thread's state. */
#include "core/base/thread.h"

_Thread_local strata_thread *strata_thread_current __attribute__((tls_model("initial-exec")));
