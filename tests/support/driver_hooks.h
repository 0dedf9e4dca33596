/* Hooks of the driver's entry table: which calls the library makes, and which objects it has created and not destroyed.
 * Tests make their own calls through test_cu, past the hooks, so only the library's calls are seen. */
#ifndef STRATA_TEST_DRIVER_HOOKS_H
#define STRATA_TEST_DRIVER_HOOKS_H

#include "support/driver.h"

/* The effect on the library's n-th call, counted from 1; 0: none. */
typedef enum test_plan_kind {
    TEST_PLAN_FAIL, /* the n-th call returns `error` and does nothing */
    TEST_PLAN_DROP, /* the driver forgets the n-th record, wait, synchronization or query that reports completion */
} test_plan_kind;

typedef struct test_plan {
    test_plan_kind kind;
    uint64_t nth;
    CUresult error;
} test_plan;

/* What the library has created and not destroyed. */
typedef struct test_holdings {
    uint32_t streams, events, pools, blocks, pinned, modules;
    uint32_t mapped;  /* address ranges, physical allocations, mappings */
    uint32_t unowned; /* destroyed objects that the library had not created, or had destroyed before */
} test_holdings;

typedef struct test_driver_hook_seen {
    uint64_t calls, edges; /* that a plan can count */
    bool fired;
    bool here;        /* in the thread that installed the hooks */
    const char *name; /* of the call, such as "cuEventRecord" */
    unsigned said,
        said_before;     /* failures logged since the call, and before it; not while the test has a log callback */
    strata_error before; /* the thread's last error before it */
    bool ending;         /* the call would have destroyed an object, which is left unless it is destroyed again */
} test_driver_hook_seen;

/* Installs the hooks until the process ends. The driver is open, and no other thread calls it. */
void test_driver_hook_install(const test_plan *plan);
bool test_driver_hook_is_installed(void);

/* Called before the hooks are installed. From then on relied[n] is whether the n-th edge was relied on: by a wait, or,
 * for a record, by a wait before the next record of its event. With `host`, waits of the host count too: the owner
 * returns memory after them. In a pool with stream-ordered frees they only count memory as free. Queries do not count.
 */
void test_driver_hook_rely(bool *relied, size_t room, bool host);

/* Ends the plan. */
void test_driver_hook_disarm(void);

void test_driver_hook_look(test_driver_hook_seen *seen, test_holdings *holdings);

#endif
