/* Uses that the checker sees. Tests note uses of blocks that nothing touches, since they look at calls and statuses; in
 * a sweep of edges each use that is prepared, by itself or in a launch, submits a kernel that says to the checker what
 * it does with the block. Then a wait that is missing is missed. */
#ifndef STRATA_TEST_TOUCH_H
#define STRATA_TEST_TOUCH_H

/* From what every correct program may do to what only some do. Past the end of a block under a guard are bytes that the
 * guard looks at afterwards: one is touched by each use that writes, another on the freeing stream. They are not
 * changed. A check of live blocks need not come before the next use, so that a case with such checks cannot have them
 * touched. */
typedef enum test_touch {
    TEST_TOUCH_NOTHING,
    TEST_TOUCH_USES,
    TEST_TOUCH_USES_PAST, /* and past the ends */
    TEST_TOUCH_ALL, /* uses, and each block on its stream when it is allocated, as a program that uses it there at once
                     */
    TEST_TOUCH_ALL_PAST,
} test_touch;

/* From now on, in this process. The driver is open, and simulated. */
void test_touch_begin(test_touch what);

#endif
