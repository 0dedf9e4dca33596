/* Driver calls that fail on purpose: a function replaces one entry of the driver's table for a time, returns an error
 * at the n-th call, and else the driver's answer. */
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
    TEST_FAULT_MEMSET,   /* cuMemsetD8Async and cuMemsetD32Async */
    TEST_FAULT_COPY,     /* cuMemcpyDtoDAsync */
    TEST_FAULT_HOST_ALLOCATE,
    TEST_FAULT_HOST_FREE,
    TEST_FAULT_MEM_CREATE,
    TEST_FAULT_MEM_MAP,
    TEST_FAULT_MEM_SET_ACCESS,
    TEST_FAULT_MEM_UNMAP,
    TEST_FAULT_MEM_RELEASE,
    TEST_FAULT_CALLS,
} test_fault_call;

/* From now on the call returns `result` and does nothing: at the nth time, counted from 1, and with `onwards` each time
 * after that. One fault at a time; no other thread calls the driver meanwhile. */
void test_fault_begin(test_fault_call call, unsigned nth, bool onwards, CUresult result);

/* Restores the table. Returns how often the call failed. */
unsigned test_fault_end(void);

/* Whether this process ever began a fault, and how many streams faults kept from being destroyed. */
bool test_fault_was_begun(void);
unsigned test_fault_streams_kept(void);

/* Until test_fault_end, cuStreamIsCapturing reports that this stream is captured. It takes the place of a fault. */
void test_fault_pretend_capture(CUstream stream);

#endif
