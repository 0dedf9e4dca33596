/* Uses that the checker sees. Tests record uses of blocks that no work touches, since they check calls and statuses. In
 * a sweep of edges each prepared use, alone or in a launch, submits a kernel that declares to the checker what it does
 * with the block. So a missing wait is reported. */
#ifndef STRATA_TEST_TOUCH_H
#define STRATA_TEST_TOUCH_H

/* Ordered from what every correct program may do to what only some may. After a block under a guard there are bytes
 * that the guard checks: each use that writes touches one of them, the freeing stream another, without changing them. A
 * check of live blocks need not come before the next use, so cases with such checks do not touch these bytes. */
typedef enum test_touch {
    TEST_TOUCH_NOTHING,
    TEST_TOUCH_USES,
    TEST_TOUCH_USES_PAST, /* and past the ends */
    TEST_TOUCH_ALL, /* uses, and each block on its stream at its allocation, as a program that uses it there at once */
    TEST_TOUCH_ALL_PAST,
} test_touch;

/* From now on, in this process. The driver is open, and simulated. */
void test_touch_begin(test_touch what);

#endif
