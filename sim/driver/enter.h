/* Entry points: the functions that the driver exports. Each enters, calls its room, and leaves. Rooms never enter.
 */
#ifndef STRATA_SIM_DRIVER_ENTER_H
#define STRATA_SIM_DRIVER_ENTER_H

#include "check/check.h"
#include "graph/graph.h"

/* Begin and end of a driver call. After a failed sim_enter* the lock is not held, and the call returns the error.
 *
 * As in the driver, most calls fail in host functions and forked children, and many need a current context. A call on a
 * handle works without a context and in host functions (sim_enter_handle); a query, even in a forked child
 * (sim_enter_query).
 *
 * Macros, for __func__ in reports and the fault plan. A helper of several entry points passes the name on (`..._as`);
 * an alias names itself with sim_called_as. */
#define sim_enter()                       sim_enter_as(__func__)
#define sim_enter_context(context)        sim_enter_context_as(__func__, context)
#define sim_enter_unsafe()                sim_enter_unsafe_as(__func__)
#define sim_enter_context_unsafe(context) sim_enter_context_unsafe_as(__func__, context)
#define sim_enter_handle()                sim_enter_handle_as(__func__)
#define sim_enter_query()                 sim_enter_query_as(__func__)
CUresult sim_enter_as(const char *entry);
CUresult sim_enter_context_as(const char *entry, sim_context **context);
CUresult sim_enter_unsafe_as(const char *entry); /* with sim_capture_guard */
CUresult sim_enter_context_unsafe_as(const char *entry, sim_context **context);
CUresult sim_enter_handle_as(const char *entry);
CUresult sim_enter_query_as(const char *entry);
CUresult sim_leave(CUresult result);

/* NOT_SUPPORTED if the devices lack virtual memory management. */
#define sim_enter_virtual_memory() sim_enter_virtual_memory_as(__func__)
CUresult sim_enter_virtual_memory_as(const char *entry);

bool sim_entry_known(const char *name); /* proc_address.c; without a version's suffix */

/* Of CUDA 13.3; older headers do not declare them. */
#if CUDA_VERSION < 13030
#pragma GCC visibility push(default)
CUresult cuStreamBeginRecaptureToGraph(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                       sim_recapture_callback callbackFunc, void *userData);
CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
                                            sim_recapture_callback callbackFunc, void *userData);
#pragma GCC visibility pop
#endif

/* ---- missing.c ---- */

void sim_missing_note(const char *name);
void sim_missing_print(FILE *out);

/* ---- context.c ---- */

CUresult sim_context_open(sim_device *device, bool primary, unsigned flags, sim_context **context);
CUresult sim_context_close(sim_context *context);
void sim_context_free(sim_context *context); /* at the end of the process, in any state */

/* ---- settings.c ---- */

CUresult sim_settings_read(sim_settings *settings); /* from the environment */
const char *sim_settings_problem(void);             /* or NULL */
int sim_version(void);                              /* as cuDriverGetVersion; also before cuInit, without the lock */

#endif
