/* The calling thread's state, in a file of its own: the host memory that thread.c uses reads it, too. */
#include "core/base/thread.h"

_Thread_local strata_thread *strata_thread_current __attribute__((tls_model("initial-exec")));
