/* The driver that the tests run on: that of STRATA_DRIVER, else the GPU if there is one, else the simulated driver. It
 * is opened with call counts, so that tests can check which calls are made.
 *
 * Include this after all system headers: it includes cmocka. */
#ifndef STRATA_TEST_DRIVER_H
#define STRATA_TEST_DRIVER_H

#include "driver/driver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <strata/sim.h>
#include <strata/strata.h>

/* Opens the driver, prints its name, and makes the primary context of device 0 current in this thread. Without a driver
 * the process exits with 77, which CTest counts as skipped. */
void test_open_driver(void);
void test_open_driver_quietly(void); /* prints only errors */

/* The exit status of a test program that calls the driver through strata_cu before it is open. */
enum { TEST_DRIVER_UNOPENED = 70 };

/* Makes the primary context of device 0 current in the calling thread, as the threads of a CUDA program do. */
void test_make_current(void);

/* Called last in a thread that used its per-thread stream. Driver 580 may hang at the thread's end while that stream
 * has pending work (docs/measurements.md), so that on hardware this waits for the stream. */
void test_leave_thread(void);

/* Orders the next work of `later` after the work of `earlier` so far, as the program, without telling Strata. */
void test_order_after(CUstream later, CUstream earlier);

bool test_on_simulated_driver(void);

/* The driver for the test's own calls: strata_cu, or the entries below the hooks of support/driver_hooks.h. */
const strata_entry_table *test_cu(void);

/* Skips the running test, with a message, unless the driver is the simulated one. */
void test_needs_simulated_driver(const char *why);

/* Skips the running test, with a message, where cuEventQuery reports a complete event as pending. A driver may; with
 * STRATA_SHIM_EVENTS_PENDING the shim of tests/shim always does. */
void test_needs_truthful_queries(void);

/* The functions that control the simulated driver; NULL on another one. */
typedef struct test_sim {
    PFN_strata_sim_set_seed set_seed;
    PFN_strata_sim_set_policy set_policy;
    PFN_strata_sim_get_accounts get_accounts;
    PFN_strata_sim_add_fault add_fault;
    PFN_strata_sim_fault_reached fault_reached;
    PFN_strata_sim_clear_faults clear_faults;
    PFN_strata_sim_set_check set_check;
    PFN_strata_sim_host_read host_read;
    PFN_strata_sim_get_check_accounts get_check_accounts;
    PFN_strata_sim_get_report_count get_report_count;
    PFN_strata_sim_get_report get_report;
    PFN_strata_sim_clear_reports clear_reports;
} test_sim;
const test_sim *test_sim_control(void);

/* ---- checking the answers of calls; a failure prints the library's error record ---- */

#define check_ok(call)           test_check_status((call), STRATA_SUCCESS, #call, __FILE__, __LINE__)
#define check_status(call, want) test_check_status((call), (want), #call, __FILE__, __LINE__)
#define check_cu(call)           test_check_cu((call), CUDA_SUCCESS, #call, __FILE__, __LINE__)

void test_check_status(strata_status got, strata_status want, const char *call, const char *file, int line);
void test_check_cu(CUresult got, CUresult want, const char *call, const char *file, int line);

/* Checks that the thread's last error has this status and a message that contains `words`. */
#define check_last_error(want, words) test_check_last_error((want), (words), __FILE__, __LINE__)
void test_check_last_error(strata_status want, const char *words, const char *file, int line);

/* ---- counting driver calls ---- */

enum { TEST_CALLS_ROOM = 128 };

/* The calls of each entry point before the count began, with those of the test itself. */
typedef struct test_calls {
    size_t names;
    struct {
        const char *name;
        uint64_t count;
    } before[TEST_CALLS_ROOM];
} test_calls;

void test_calls_begin(test_calls *calls);

/* The number of calls of this entry point ("cuEventRecord"), or of any, since then. */
uint64_t test_calls_of(const test_calls *calls, const char *name);
uint64_t test_calls_total(const test_calls *calls);

/* Whether either function was ever called. */
bool test_calls_were_counted(void);

#endif
