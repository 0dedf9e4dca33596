/* The driver door under watch: what the library calls, and what it has made and not ended. Tests make their own calls
 * beside it, through test_cu, so that what is seen here is the library's alone. */
#ifndef STRATA_TEST_DOOR_H
#define STRATA_TEST_DOOR_H

#include "support/driver.h"

/* What happens to the library's n-th call, counted from 1; 0: nothing to any. */
typedef enum test_plan_kind {
    TEST_PLAN_FAIL, /* the n-th call answers `error` and does nothing */
    TEST_PLAN_DROP, /* the n-th record, wait, synchronization or query that says complete is forgotten by the driver */
} test_plan_kind;

typedef struct test_plan {
    test_plan_kind kind;
    uint64_t nth;
    CUresult error;
} test_plan;

/* What the library has made through the door and not ended. */
typedef struct test_holdings {
    uint32_t streams, events, pools, blocks, pinned, modules;
    uint32_t mapped;  /* ranges of addresses, pieces of memory for them, and maps */
    uint32_t strange; /* ends of what the library had not made, or had ended before */
} test_holdings;

typedef struct test_door_seen {
    uint64_t calls, edges; /* that a plan can count */
    bool fired;
    bool here;        /* in the thread that began the watch */
    const char *name; /* of the call that it met, such as "cuEventRecord" */
    unsigned said,
        said_before;     /* failures that were logged since then, and until then; while the test hears none itself */
    strata_error before; /* the last error of the thread then */
    bool ending;         /* it met the end of something, which stays therefore, unless it is ended again */
} test_door_seen;

/* From now on, until the process ends. The driver is open and no other thread calls it. */
void test_door_watch(const test_plan *plan);
bool test_door_is_watched(void);

/* Before the watch begins: relied[n] says from then on whether anything relied on the n-th edge: a wait, or a record
 * that a wait looked at before the next one of its event. What the host waits for counts where it gives memory back
 * itself, with `host`; in a pool whose frees are ordered by streams it is only counted as free. A query makes nobody
 * wait. */
void test_door_rely(bool *relied, size_t room, bool host);

/* No call is met any more. */
void test_door_disarm(void);

void test_door_look(test_door_seen *seen, test_holdings *holdings);

#endif
