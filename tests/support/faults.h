/* Driver calls that fail on purpose: one entry of the door's table is replaced for a while by one that answers an error
 * the n-th time, and otherwise what the driver answers. */
#ifndef STRATA_TEST_FAULTS_H
#define STRATA_TEST_FAULTS_H

#include "support/driver.h"

typedef enum test_fault_call {
    TEST_FAULT_EVENT_CREATE,
    TEST_FAULT_EVENT_QUERY,
    TEST_FAULT_EVENT_RECORD,
    TEST_FAULT_EVENT_SYNCHRONIZE,
    TEST_FAULT_STREAM_CREATE,
    TEST_FAULT_STREAM_DESTROY,
    TEST_FAULT_STREAM_SYNCHRONIZE,
    TEST_FAULT_STREAM_WAIT_EVENT,
    TEST_FAULT_STREAM_GET_ID,
    TEST_FAULT_ALLOCATE, /* cuMemAllocFromPoolAsync and cuMemAlloc */
    TEST_FAULT_FREE,     /* cuMemFreeAsync and cuMemFree */
    TEST_FAULT_MEM_CREATE,
    TEST_FAULT_MEM_MAP,
    TEST_FAULT_MEM_SET_ACCESS,
    TEST_FAULT_MEM_UNMAP,
    TEST_FAULT_MEM_RELEASE,
    TEST_FAULT_CALLS,
} test_fault_call;

/* From now on the call answers `result` instead of doing anything: the nth time, counted from 1, and with `onwards`
 * each time after that. One fault at a time; no other thread calls the driver meanwhile. */
void test_fault_begin(test_fault_call call, unsigned nth, bool onwards, CUresult result);

/* Puts the table back. Returns how often the call was refused. */
unsigned test_fault_end(void);

/* Whether this process ever began one, and how many streams such faults kept from being destroyed. */
bool test_fault_was_begun(void);
unsigned test_fault_streams_kept(void);

/* From now until test_fault_end, cuStreamIsCapturing says that this stream is being captured; instead of a fault. */
void test_fault_pretend_capture(CUstream stream);

#endif
