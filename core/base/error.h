/* Failing: how the inside of the library fills the thread's error record. */
#ifndef STRATA_CORE_BASE_ERROR_H
#define STRATA_CORE_BASE_ERROR_H

#include <strata/resource.h>
#include <strata/status.h>

/* The thread's record, cleared and with `status` set, for the caller to fill and then raise. Never NULL. */
strata_error *strata_error_begin(strata_status status);

/* Writes the sentence, calls the log callback, and returns the record's status. */
strata_status strata_error_raise(strata_error *error, const char *format, ...) STRATA_PRINTF(2, 3);

/* Between the two, what this thread raises is neither kept nor logged: for a try after which another way is open. With
 * `say`, the last of it counts after all. They nest. */
void strata_error_suppress_begin(void);
void strata_error_suppress_end(bool say);

/* As strata_error_begin, for a finding, which no call fails for. On a thread that is hushed it takes no failure's
 * place: the log callback hears it when that is over. It is dropped if too many wait, or there is no memory. */
strata_error *strata_error_begin_finding(strata_status status);

/* What was raised last between the two, for a copy before the second; SUCCESS if nothing was. Never NULL. */
const strata_error *strata_error_suppressed(void);

/* The record of the thread's last failure: the unsaid one on a thread that is hushed. Never NULL. */
const strata_error *strata_error_in_force(void);

/* Around a call of the program's own in the middle of something: its errors are kept and logged as ever, however the
 * thread is hushed, and afterwards all is as it was. */
struct strata_notice;
typedef struct strata_error_aside {
    struct strata_thread *thread; /* NULL: it has no state, and nothing to be set aside */
    uint32_t suppress_depth;
    struct strata_notice *notices, *last_notice;
    strata_error error, suppressed;
} strata_error_aside;
void strata_error_set_aside(strata_error_aside *aside);
void strata_error_take_back(const strata_error_aside *aside);

/* Raises a record that was copied before: it becomes the thread's last failure, and the log callback hears it. */
strata_status strata_error_raise_again(const strata_error *kept);

/* Whether the thread is in the log callback. */
bool strata_error_is_being_reported(void);

/* A failed driver call: the status that belongs to `result` (OUT_OF_MEMORY, SHUT_DOWN, STREAM_CAPTURE, ERROR_DRIVER),
 * with the driver's code and name in the record. `call` is the entry point, such as "cuMemAlloc". */
strata_status strata_fail_driver(CUresult result, const char *call, const char *format, ...) STRATA_PRINTF(3, 4);
strata_status strata_status_of_driver(CUresult result);

/* No host memory for `what`. */
strata_status strata_fail_host_memory(const char *what);

/* Opens the driver; SUCCESS, DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN or FORKED. */
strata_status strata_driver_open(void);

/* SUCCESS while the driver can be used; else SHUT_DOWN or FORKED, raised. Cheap: for the head of public calls. */
strata_status strata_refuse_unusable(void);
static inline strata_status strata_usable(void);

#include "driver/driver.h"

/* SUCCESS, or FORKED: for calls that need no driver and take a lock, which another thread may have held at the fork. */
static inline strata_status strata_not_forked(void)
{
    return __builtin_expect(strata_driver_state_now() == STRATA_DRIVER_FORKED, 0) ? strata_refuse_unusable()
                                                                                  : STRATA_SUCCESS;
}

static inline strata_status strata_usable(void)
{
    return __builtin_expect(strata_driver_state_now() == STRATA_DRIVER_OPEN, 1) ? STRATA_SUCCESS
                                                                                : strata_refuse_unusable();
}

#endif
