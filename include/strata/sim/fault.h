/* Fault injection in the simulated driver; strata/sim.h includes this.
 *
 * A fault happens once, at the n-th occurrence of its subject since it was added, and goes on counting until
 * strata_sim_clear_faults. A sweep adds one fault with n = 1, 2, … before each run of a scenario, and ends when
 * `reached` stays below n. */
#ifndef STRATA_SIM_FAULT_H
#define STRATA_SIM_FAULT_H

#include <cuda.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_sim_fault_kind {
    /* The n-th driver call, or call of `entry`, returns `error` and does nothing. Not counted: calls that are not
     * permitted in a host function, cuDriverGetVersion, cuGetErrorName, cuGetErrorString and cuGetProcAddress. */
    STRATA_SIM_FAIL_CALL = 0,

    /* The n-th operation of `stream`, records of and waits for events included, fails with `error` when it runs, and
     * poisons the device as an illegal access does: every later call that uses the device returns the error. */
    STRATA_SIM_FAIL_OPERATION = 1,

    /* The n-th wait or record of `edges` succeeds and orders nothing. */
    STRATA_SIM_DROP_EDGE = 2
} strata_sim_fault_kind;

/* What orders work, or tells the host of its completion. Bits. */
typedef enum strata_sim_edge {
    STRATA_SIM_EDGE_EVENT_RECORD = 0x01,      /* the event keeps its previous record */
    STRATA_SIM_EDGE_EVENT_WAIT = 0x02,        /* cuStreamWaitEvent, of a recorded event */
    STRATA_SIM_EDGE_EVENT_SYNCHRONIZE = 0x04, /* of a recorded event */
    STRATA_SIM_EDGE_EVENT_QUERY = 0x08,       /* answers "complete" */
    STRATA_SIM_EDGE_STREAM_SYNCHRONIZE = 0x10,
    STRATA_SIM_EDGE_STREAM_QUERY = 0x20, /* answers "complete" */
    STRATA_SIM_EDGE_CONTEXT_SYNCHRONIZE = 0x40,
    STRATA_SIM_EDGE_VALUE_WAIT = 0x80, /* a stream's, in memory */
    STRATA_SIM_EDGE_ANY = 0xff
} strata_sim_edge;

typedef struct strata_sim_fault {
    uint32_t size; /* of this struct */
    strata_sim_fault_kind kind;
    uint64_t nth; /* from 1 */

    CUresult error;    /* FAIL_CALL, FAIL_OPERATION; not CUDA_SUCCESS */
    const char *entry; /* FAIL_CALL: as for cuGetProcAddress, copied; NULL: any */
    CUstream stream;   /* FAIL_OPERATION: a handle (CU_STREAM_LEGACY, …); NULL: all together */
    uint32_t edges;    /* DROP_EDGE */
} strata_sim_fault;

/* At any time. `id` may be NULL. CUDA_ERROR_INVALID_VALUE: contradictory members, an unknown or never counted entry
 * point, or unknown edges. CUDA_ERROR_OUT_OF_MEMORY: 32 faults exist. */
CUresult strata_sim_add_fault(const strata_sim_fault *fault, uint32_t *id);

/* Occurrences so far. CUDA_ERROR_INVALID_VALUE: no such fault. */
CUresult strata_sim_fault_reached(uint32_t id, uint64_t *reached);

/* Removes all faults. */
CUresult strata_sim_clear_faults(void);

typedef CUresult (*PFN_strata_sim_add_fault)(const strata_sim_fault *fault, uint32_t *id);
typedef CUresult (*PFN_strata_sim_fault_reached)(uint32_t id, uint64_t *reached);
typedef CUresult (*PFN_strata_sim_clear_faults)(void);

#ifdef __cplusplus
}
#endif

#endif
