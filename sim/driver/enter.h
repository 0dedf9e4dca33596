/* Entry points: the functions that the driver exports, and what begins and ends each of their calls. An entry point
 * enters, calls one function of a room, and leaves. The rooms never enter. */
#ifndef STRATA_SIM_DRIVER_ENTER_H
#define STRATA_SIM_DRIVER_ENTER_H

#include "check/check.h"
#include "graph/graph.h"

/* Begin and end a driver call. After sim_enter* failed the lock is not held and the call returns what it got.
 *
 * The driver looks at as little as a call needs, and so do these. Most calls are refused in a host function and in a
 * forked child, and many need a current context. A call on a handle needs the handle alone: it works without a current
 * context and in a host function (sim_enter_handle), and if it only asks, even in a forked child (sim_enter_query).
 *
 * They note which entry point was called, for reports and for the fault plan, and are macros since only so they learn
 * the name of the function that they stand in. A function that begins calls for several entry points passes the name on
 * (`..._as`); an entry point that is another one by a further name says so before it calls that (sim_called_as). */
#define sim_enter()                       sim_enter_as(__func__)
#define sim_enter_context(context)        sim_enter_context_as(__func__, context)
#define sim_enter_unsafe()                sim_enter_unsafe_as(__func__)
#define sim_enter_context_unsafe(context) sim_enter_context_unsafe_as(__func__, context)
#define sim_enter_handle()                sim_enter_handle_as(__func__)
#define sim_enter_query()                 sim_enter_query_as(__func__)
CUresult sim_enter_as(const char *entry);
CUresult sim_enter_context_as(const char *entry, sim_context **context);
CUresult sim_enter_unsafe_as(const char *entry); /* as sim_enter, and a capture may not survive it */
CUresult sim_enter_context_unsafe_as(const char *entry, sim_context **context);
CUresult sim_enter_handle_as(const char *entry);
CUresult sim_enter_query_as(const char *entry);
CUresult sim_leave(CUresult result);

/* sim_enter, where the devices have virtual memory management; else NOT_SUPPORTED. */
#define sim_enter_virtual_memory() sim_enter_virtual_memory_as(__func__)
CUresult sim_enter_virtual_memory_as(const char *entry);

bool sim_entry_known(const char *name); /* proc_address.c; without the suffix of a version */

/* ---- context.c ---- */

CUresult sim_context_open(sim_device *device, bool primary, unsigned flags, sim_context **context);
CUresult sim_context_close(sim_context *context);
void sim_context_free(sim_context *context); /* at the end of the process: whatever state it is in */

/* ---- settings.c ---- */

CUresult sim_settings_read(sim_settings *settings); /* settings.c: what the environment says */
const char *sim_settings_problem(void);             /* what was wrong with that, or NULL */

#endif
