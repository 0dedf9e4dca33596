/* `strata exec`: a program that knows nothing of Strata gets its memory from a stack.
 *
 * This library is loaded before all others of the program (LD_PRELOAD) and contains Strata. The driver's functions that
 * make, end or report memory come here (hooks.h). What a stack can give comes from a runtime of its own for each
 * device; what it cannot give is passed on to the driver, counted, and charged to the stack's budget.
 *
 *   begin.c        before the program begins
 *   settings.c     what the launcher asks for, from the environment; what is counted
 *   loader.c       the loader's own dlsym, and this library's symbols
 *   hooks.c        the table of hooks, and the real functions
 *   lookup.c       the hooks of dlsym and dlvsym
 *   covered.c      functions that need no hook; uncovered.c counts the calls of all others
 *   proc_address.c the hooks of cuGetProcAddress
 *   memory.c       linear memory: cuMemAlloc, cuMemAllocAsync, their frees
 *   frees.c        frees for every stream, which wait for barriers and captures
 *   order.c        memory that any stream may use at once, without a wait on the host
 *   beginnings.c   keeps captures from beginning while the legacy stream is used
 *   streams.c      the hooks of streams and captures; noticed.c keeps them
 *   contexts.c     begins and ends of contexts; beside.c keeps those beside the primary ones
 *   passed.c       what is passed on: how much of what, and its charge; passed_table.c keeps it, passed_report.c tells
 *   kinds.c        the kinds of it
 *   other.c        the hooks of what is always passed on: managed, pitched, arrays, physical memory
 *   pools.c        the driver's pools
 *   graphs.c       memory of graphs' own nodes
 *   host.c         host memory
 *   imported.c     memory of others, multicast objects
 *   ipc.c          cuIpcGetMemHandle, cuIpcOpenMemHandle; offers.c gives memory to other processes, guests.c maps it
 *   mappings.c     physical memory that the program maps
 *   truth.c        what the program is told about memory; nvml.c: by NVML
 *   callers.c      which library asked
 *   device.c       a runtime for each device
 *   set_aside.c    a part of its budget for what no hook sees
 *   report.c       what happened; blind.c: what was not seen; live.c: the same while the program runs
 *   report_stacks.c  what each call stack holds, and what is left at the end; ended.c: the same of stacks that
 *                  ended with their context
 *   refusals.c     why requests were refused; wrong_frees.c: frees of what is no block
 *   python.h       CPython's frames: python_frames.c finds them, python_names.c names them, python_objects.c reads
 *   caches.c       what libraries of Python keep; caches_asked.c asks them, by the functions of python_calls.c
 *
 * Locks, outermost first: report.c's, a device's `ending`, device.c's, set_aside.c's, a device's `publishing`,
 * noticed.c's, beside.c's, frees.c's, mappings.c's, passed.c's, callers.c's; pools.c's, offers.c's, guests.c's, inside
 * of which none of these is taken. Strata's own locks are inside all of them, and beginnings.c's inside those. Those of
 * passed.c, refusals.c and wrong_frees.c are held around no call, caches.c's around Py_AddPendingCall,
 * python_frames.c's around look-ups of the loader. */
#ifndef STRATA_ADAPTERS_EXEC_EXEC_H
#define STRATA_ADAPTERS_EXEC_EXEC_H

#include "adapters/exec/hooks.h"
#include "adapters/exec/loader.h"
#include "adapters/exec/settings.h"
#include "driver/driver.h"

#include <strata/budget.h>
#include <strata/emitter.h>
#include <strata/runtime.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define EXEC_EXPORT __attribute__((visibility("default")))

/* Whether this is a forked child of a process with an open driver. Its calls go to the driver alone, and it takes no
 * lock of this library: a thread of the parent may have held any of them at the fork. */
static inline bool exec_is_forked(void)
{
    return strata_driver_state_now() == STRATA_DRIVER_FORKED;
}

/* ---- devices (device.c) ---- */

enum { EXEC_DEVICES = 64 };

typedef enum exec_device_state {
    EXEC_DEVICE_NONE = 0,
    EXEC_DEVICE_READY,
    EXEC_DEVICE_FAILED, /* its stack could not be built */
} exec_device_state;

typedef struct exec_device {
    /* Written under device.c's lock while the state is not READY. A thread that found it READY may still read the rest
     * during a reset, and gets the stack of before or the one after it. */
    _Atomic int state; /* exec_device_state */
    int ordinal;       /* written before the first stack alone */
    _Atomic(strata_runtime *) runtime;
    _Atomic(CUcontext) context;               /* the primary one */
    _Atomic unsigned number;                  /* of the runtime, counted over the process; 0: none was made */
    _Atomic(strata_budget_account *) account; /* of the stack's nearest budget; NULL: none */

    /* set_aside.c */
    _Atomic bool owes_set_aside;         /* the part did not fit: requests fail until it does; any thread */
    _Atomic uint64_t set_aside;          /* bytes that are set aside; any thread */
    strata_budget_account *set_aside_of; /* the account that is charged with them; under set_aside.c's lock */

    _Atomic uint32_t resets; /* calls under way that may end the primary context; any thread */

    _Atomic uint64_t passed_on; /* bytes; under passed.c's lock, read by any thread */

    /* All blocks so far lie from `lowest` to `beyond`, which only grow apart; any thread. Zeros: none yet. */
    _Atomic CUdeviceptr lowest, beyond;

    /* order.c */
    pthread_mutex_t publishing;
    _Atomic uint64_t frees;         /* so far, without a barrier before them; any thread */
    _Atomic uint64_t published;     /* how many of these the latest barrier followed; written under `publishing` */
    CUevent event;                  /* the latest barrier's, or NULL; under `publishing` */
    CUevent last_work;              /* recorded on one stream after another, or NULL; under `publishing` */
    _Atomic bool memory_is_ordered; /* a new block may wait for work of its stream: of `async`, or a guard's fill */

    _Atomic bool completes_late;  /* the stack counts frees as complete only where it looks for that, as no pool does */
    _Atomic bool memory_outlives; /* the stack's memory does not end with its context: it is of the driver's pools */
    _Atomic bool hides_blocks; /* the stack's table may have blocks that no search finds: a layer's chunks, and what a
                                  guard holds back */
    _Atomic bool budget_counts_free; /* layers above the budget keep free memory */
    _Atomic bool is_guarded;         /* the stack has a guard, whose own work uses memory that ends with the context */
    pthread_rwlock_t ending;         /* write-locked by a call that may end the context; made with the first stack */

    /* frees.c */
    _Atomic bool frees_at_once;       /* a layer (guard, logging) is to see each free as it is made */
    _Atomic uint64_t live, most_live; /* bytes that the program has of the stack, and the most so far; any thread */
    _Atomic uint64_t used_high;       /* the most since the program set the default pool's peak to zero; any thread */
    _Atomic uint64_t reserved_then, peak_then; /* bytes reserved, and their peak, when it did; any thread */
    _Atomic uint64_t waiting;                  /* bytes of frees that wait; under frees.c's lock, read by any thread */
    _Atomic uint32_t waiting_count;            /* number of these frees; likewise */
} exec_device;

/* The current context's device. */
typedef struct exec_here {
    exec_device *device; /* NULL: no context is current, the stack could not be built, or Strata has nothing to do */
    CUcontext context;   /* the current one; NULL: none, or not asked for */
    bool primary;        /* the stack serves it: the context is the device's primary one */
    bool refused;        /* memory is refused: the stack could not be built, and the program must not run without */
    const exec_device *there; /* `device`, if the driver has just said that its stack's context has not ended */
} exec_here;

/* Has `call` called once when the driver is open; at once if it is. Called before the process has other threads. */
void exec_on_driver_open(void (*call)(void));

/* Has `call` called with each device that gets a stack, before any request. Called before there are other threads. */
void exec_on_stack_built(void (*call)(exec_device *device));

/* Has `look` called where exec_device_meet_reset finds a reset. Called before the process has other threads. */
void exec_on_reset_met(bool (*look)(int ordinal));

/* Opens the program's driver for Strata. False: the program has not called cuInit, the driver cannot be used, or Strata
 * is not for this process. Any thread. */
bool exec_open_driver(void);

/* Returns the current context's device, and builds its runtime if it has none. Any thread. */
exec_here exec_device_here(void);

/* As above, and sets `there` if the stack's context has not ended: one question to the driver instead of two. */
exec_here exec_device_here_now(void);

/* As exec_device_here, for memory that the driver gives. A charge must not go to the stack of a context that has ended,
 * so that with a budget the context is looked at, too. */
static inline exec_here exec_device_to_charge(void)
{
    return exec_settings_now.charged ? exec_device_here_now() : exec_device_here();
}

/* As exec_device_here_now, for memory requested on a stream: the driver gives it of the stream's device, whatever
 * context is current. */
exec_here exec_device_of_stream(CUstream stream);

/* The device of the current context. NULL: it has no stack. */
exec_device *exec_device_if_ready(void);

/* Whether a context is the primary one of the device. The question creates no context. */
bool exec_is_primary(CUcontext context, CUdevice ordinal);

/* The device with this ordinal; its runtime is built if it has none. NULL: it has no stack. */
exec_device *exec_device_start(int ordinal);

/* The device with this ordinal, of which the driver is asked for memory. NULL: it has no stack, and `here` and the
 * settings ask for none. */
exec_device *exec_device_of_memory(const exec_here *here, int ordinal);

/* The number of a context's device, whatever context is current. -1: it is not known. */
int exec_ordinal_of(CUcontext context);

/* The device of a context of any kind; its runtime is built if it has none. NULL: it is not known, or has no stack. */
exec_device *exec_device_of(CUcontext context);

/* The ready devices, by number, which is below the bound; NULL: number `i` is not ready. A forked child has none. After
 * a reset by another thread the next call may find a device no longer ready. */
size_t exec_device_bound(void);
exec_device *exec_device_at(size_t i);

/* Returns the first ready device from number *i on, and moves *i behind it. NULL: there is none. */
exec_device *exec_device_next(size_t *i);

/* Makes each thread look up its context anew: one has ended, and another may have its handle. */
void exec_device_context_ended(void);

/* Gives up a device's runtime after a reset of its primary context; the next request builds another. False: the device
 * has no stack, or its stack is already one of the new context. `forget` is called, with device.c's lock, before any
 * thread can find that the stack is gone. */
bool exec_device_give_up(int ordinal, void (*forget)(exec_device *device));

/* Around a call that may reset the device: meanwhile what is recorded of the context meets the reset first
 * (exec_device_meet_reset_beside). */
void exec_device_mark_reset(int ordinal, bool begins);

/* Between enter and leave, no call of the program that this library sees ends the context of a guarded stack: the
 * guard's own work would run in the next context, on memory that is gone. False: the context has ended; no leave
 * follows. */
bool exec_device_enter(exec_device *device);
void exec_device_leave(exec_device *device);

/* Waits for all work of the context, which is about to end. False: the work outlasts the time limit (last_wait.c). */
bool exec_device_work_ends(const exec_device *device);

/* Around a call that may end the primary context; begin waits until no thread is between enter and leave, where a
 * request that waits for a budget gives up, and takes part again behind the call. `device`: NULL: it has no stack. */
typedef struct exec_ending {
    exec_device *device;
    struct strata_device *marked; /* of a guarded stack */
    int cancel;                   /* meanwhile the thread is not ended by pthread_cancel */
} exec_ending;
exec_ending exec_device_end_begin(exec_device *device);
void exec_device_end_over(const exec_ending *ending);

/* Waits until no such call is under way, of a guarded stack. For a charge that gave up. */
void exec_device_await_ended(const exec_device *device);

/* Gives up the device's runtime after a reset, and forgets the streams and the passed memory of the context
 * (contexts.c). */
void exec_device_was_reset(int ordinal);

/* Whether the device was reset by a call that this library did not see; if so, does as above. */
bool exec_device_found_reset(int ordinal);

/* Whether the context of the device's stack has not ended, by one question to the driver (16 ns on the simulated one).
 * If it has, its handles must not be used: a driver crashes on those of streams. */
bool exec_device_has_its_context(const exec_device *device);

/* Called before anything of a primary context is recorded. After a reset that was not seen, or during one by another
 * thread, the context may be a new one with the former handle: what is recorded of the former one is forgotten here
 * first. */
void exec_device_meet_reset(int ordinal);

/* As above, but only while a call resets the device: one load for calls that are made often. */
static inline void exec_device_meet_reset_beside(exec_device *device)
{
    if (__builtin_expect(atomic_load(&device->resets) != 0, 0))
        exec_device_meet_reset(device->ordinal);
}

/* Around a call that ends a context, for a green one by its own handle, too (contexts.c). Returns the call's result. */
void exec_context_ending(CUcontext context);
CUresult exec_context_ended(CUcontext context, CUresult result);

/* The driver's result for the status of a call that has just failed. */
CUresult exec_result_of(strata_status status);

/* Whether a handle names a default stream, which is of the context that is current. */
static inline bool exec_is_default(CUstream stream)
{
    return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

/* The stream that is meant by a caller whose stream 0 is its thread's default stream. */
static inline CUstream exec_own_default(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* Widens the device's range of addresses by a new block, before the program gets it, so that the block is found. */
void exec_device_has_block(exec_device *device, const strata_block *block);

/* Whether an address can be of any stack's memory: quick, and false for most that are none of it. */
bool exec_device_may_have(CUdeviceptr address);

/* Whether an address that is of no live block is in one that a layer holds back or cuts up. */
bool exec_device_hides(CUdeviceptr address);

/* Whether an address that is of no live block lies in memory that a stack holds. */
bool exec_is_held(CUdeviceptr address);

/* An address that no driver knows. */
enum { EXEC_UNKNOWN_ADDRESS = 0x1000 };

/* Returns the address to pass to the driver in a call about the program's own mappings: EXEC_UNKNOWN_ADDRESS for one in
 * memory of a stack, or opened from another process. To the driver that is a mapping, to the program it is none. */
CUdeviceptr exec_address_of_a_mapping(CUdeviceptr address);

/* As above, in a question for the handle behind an address: a block of pool(contiguous=SIZE) has one, and keeps its
 * address. */
CUdeviceptr exec_address_with_a_handle(CUdeviceptr address);

/* Finds the block that begins at `address` or contains it, also one whose free waits. Returns its device; NULL: there
 * is none. */
exec_device *exec_find_block(CUdeviceptr address, strata_block *block);

/* ---- what is set aside of a budget (set_aside.c) ---- */

/* Charges the budget of a new stack, without a wait; says so if that does not fit, and leaves it owed. Inside of
 * device.c's lock. */
void exec_set_aside_begin(exec_device *device);

/* Gives the charge back when the stack's context has ended. Inside of device.c's lock. */
void exec_set_aside_end(exec_device *device);

/* Charges what is owed; with may_wait, waits for that as long as the budget's option says. Errors: OUT_OF_BUDGET. Any
 * thread. */
strata_status exec_set_aside_settle(exec_device *device, bool may_wait);

/* As above, before each request for memory of the device: one load if nothing is owed. */
static inline strata_status exec_set_aside_first(exec_device *device, bool may_wait)
{
    return __builtin_expect(atomic_load_explicit(&device->owes_set_aside, memory_order_relaxed), 0)
               ? exec_set_aside_settle(device, may_wait)
               : STRATA_SUCCESS;
}

/* Whether --set-aside was given: then a stack is built with the program's first context, not with its first memory. */
bool exec_set_aside_is_asked_for(void);

/* `hidden`: bytes of the device in use that nothing accounts for, if that is `known`. */
void exec_set_aside_emit(strata_emitter *emitter, exec_device *device, uint64_t hidden, bool known);

/* ---- order (order.c) ---- */

/* Orders all that any stream of the device does from now on after all that any did so far. False: a capture forbids it,
 * or the driver refuses. */
bool exec_order_barrier(exec_device *device);

/* Counts a free that no barrier precedes, before it is made: the next allocation then makes a barrier. */
static inline void exec_order_count_free(exec_device *device)
{
    atomic_fetch_add(&device->frees, 1);
}

/* After an allocation on the legacy stream: orders all that any stream does from now on after the work that the memory
 * still waits for. False: a capture forbids it, or the driver refuses. */
bool exec_order_publish(exec_device *device);

/* Orders a new stream after all that was published so far. False: the driver refuses. */
bool exec_order_new_stream(exec_device *device, CUstream stream);

/* As above, for a context that may use the device's memory from now on, and for its streams. `context`: the handle
 * under which it was noticed. */
bool exec_order_new_context(exec_device *device, CUcontext context);

/* Makes the legacy stream wait for the work of a stream that is about to be destroyed. */
void exec_order_last_word(exec_device *device, CUstream stream);

/* Makes the legacy stream wait for the work of a context that is about to end. */
void exec_order_last_words(exec_device *device, CUcontext own);

/* Before a capture, makes the legacy stream wait for the work of all non-blocking streams, any of which the capture may
 * take in; after it, makes these wait for the latest barrier. */
void exec_order_before_capture(exec_device *device);
void exec_order_after_capture(exec_device *device);

/* ---- captures that begin (beginnings.c) ---- */

/* Around the driver's call that begins a capture: no barrier and no call of the stack on the legacy stream is between
 * the question whether a capture bars that stream and its use. */
typedef struct exec_beginning {
    exec_device *devices[EXEC_DEVICES]; /* whose `publishing` is held */
    size_t count;
} exec_beginning;

void exec_beginning_enter(exec_beginning *beginning);
void exec_beginning_leave(exec_beginning *beginning);
void exec_beginnings_watch(void); /* before other threads are there */

/* ---- streams and captures under way (noticed.c) ---- */

/* Whether a stream, or a context beside a primary one, was ever noticed. */
bool exec_streams_any(void);

/* Calls visit for each stream that may use the device's memory and does not wait for its legacy stream, while none can
 * be destroyed; with `own` only for those that were made in that context. */
void exec_streams_visit(int ordinal, CUcontext own, void (*visit)(CUstream stream, void *data), void *data);

/* Leaves the streams of a context that is about to end out of visits; false: it has not ended, they are visited again.
 */
void exec_streams_mark_ending(CUcontext own, bool ending);

/* Notices a stream that was made in the context `own` of a device, which may have no stack yet. False without host
 * memory: then it cannot be used safely. */
bool exec_stream_notice(CUstream stream, int ordinal, CUcontext own);
void exec_stream_forget(CUstream stream);

/* Whether a stream was noticed that may use the device's memory. */
bool exec_stream_uses(CUstream stream, int ordinal);

/* Looks up the driver's functions for green contexts. Called before the first look at a stream's context, while no lock
 * is held: the loader takes its own. */
void exec_look_up_green(void);

/* The context that a stream was made in (green.c). False: it is not known, or is a green one, which can be current to
 * one thread at a time only, and the program may have it. */
bool exec_context_of_stream(CUstream stream, CUcontext *context);

/* The context of a green context (green.c). NULL: the driver has no such function, or no such context. */
CUcontext exec_context_of_green(CUgreenCtx green);

/* The green context of a stream. NULL: it has none. */
CUgreenCtx exec_green_of_stream(CUstream stream);

/* Records an event behind all work of a green context; makes its later work wait for an event. False: the driver has no
 * such function or refuses, or a capture is under way, which would end if it is one of the green context. */
bool exec_green_record(CUgreenCtx green, CUevent event);
bool exec_green_wait(CUgreenCtx green, CUevent event);

/* Notes a capture that begins, of a stream of the context `own`. False without host memory: it must not begin. */
bool exec_capture_note(CUstream stream, CUcontext own);

/* Forgets a capture that has ended; of a default stream, the calling thread's in the context `own`. False: it is not
 * known. */
bool exec_capture_forget(CUstream stream, CUcontext own);

/* Forgets the streams and captures of a context that is gone. */
void exec_streams_forget(CUcontext context);

/* Whether any stream is being captured; whether this one may be. */
bool exec_captures_under_way(void);
bool exec_is_captured(CUstream stream);

/* The driver's result for a free, on this stream, of memory that is not of its capture. SUCCESS: it is not captured. */
CUresult exec_capture_answers_free(CUstream stream);

/* ---- contexts beside the primary ones (beside.c) ---- */

/* Whether such a context was ever noticed. */
bool exec_contexts_any(void);

typedef struct exec_beside {
    CUcontext handle;
    CUgreenCtx green; /* NULL: it is none */
    int ordinal;      /* of a green context's device */
    bool ending;      /* no call takes the handle any more */
} exec_beside;

/* Notices that work in the context may use the memory of the device. False without host memory: it must not. */
bool exec_context_notice(CUcontext context, int ordinal);

/* As above, for a new green context of that device. `context`: its context, or, if that is the primary one, a handle
 * that no context has. */
bool exec_green_notice(CUgreenCtx green, CUcontext context, int ordinal);

/* Finds the noticed green context with this handle (NULL: any) and of this device (-1: any); of several, the one with
 * this number, from 0 on. False: there is none. */
bool exec_green_find(CUgreenCtx green, int ordinal, size_t number, exec_beside *found);

/* Whether the context was noticed as one whose work may use the device's memory. */
bool exec_context_uses(CUcontext context, int ordinal);

/* Calls visit for each context that may use the device's memory, while none can end; with `own` only for that one. */
void exec_contexts_visit(int ordinal, CUcontext own, void (*visit)(const exec_beside *context, void *data), void *data);

/* As exec_streams_mark_ending and exec_streams_forget, for the context itself. */
void exec_context_mark_ending(CUcontext context, bool ending);
void exec_context_forget(CUcontext context);

/* Called with a handle that the driver has just given out: waits until another thread has forgotten the ended context
 * that had it before. */
void exec_context_await_forgetting(CUcontext context);

/* ---- frees for every stream (frees.c) ---- */

/* Frees a block, or lets the free wait. CUDA_ERROR_OUT_OF_MEMORY: without host memory it is not freed. */
CUresult exec_free_block(exec_device *device, const strata_block *block);

/* Frees a block at once, in the order of the stream, or refuses it. */
CUresult exec_free_at_once(exec_device *device, const strata_block *block, CUstream stream);

/* As above; but on a default stream of another context than the stack's, as exec_free_block. */
CUresult exec_free_on(exec_device *device, const strata_block *block, CUstream stream);

/* As exec_find_block, without blocks whose free waits. */
exec_device *exec_find_own_block(CUdeviceptr address, strata_block *block);

/* Whether the free of the block at an address waits: then it is free for the program. */
bool exec_free_waits(CUdeviceptr address);

/* Makes the frees that wait, behind a barrier, unless a stream is captured. True: at least one was made. */
bool exec_free_waiting(exec_device *device);
void exec_free_all_waiting(void);

/* As exec_free_waiting, if the stack might otherwise take memory from the device for a request of that size. */
void exec_free_before_growth(exec_device *device, size_t bytes);

/* Calls visit for each block whose free waits, with frees.c's lock: visit takes no lock. */
void exec_visit_waiting(const exec_device *device, void (*visit)(const strata_block *block, void *data), void *data);

/* Forgets the waiting frees of a device whose blocks went with a reset. Inside of device.c's lock. */
void exec_forget_waiting(exec_device *device);

/* Counts memory of the stack that the program got. */
void exec_count_live(exec_device *device, size_t bytes);

/* ---- passed on (passed.c) ---- */

typedef enum exec_kind {
    EXEC_LINEAR = 0, /* cuMemAlloc where the stack does not serve */
    EXEC_PITCHED,
    EXEC_MANAGED,
    EXEC_POOLED, /* of the driver's pools */
    EXEC_ARRAY,
    EXEC_PHYSICAL, /* cuMemCreate */
    EXEC_GRAPH,    /* of graphs' own nodes: what the driver holds for them */
    EXEC_EXTERNAL, /* another API's, while it is imported */
    /* From here on: counted without a charge. */
    EXEC_HOST,
    EXEC_REGISTERED,        /* the program's own host memory */
    EXEC_IMPORTED,          /* addresses: cuIpcOpenMemHandle, cuMemPoolImportPointer */
    EXEC_IMPORTED_PHYSICAL, /* handles: cuMemImportFromShareableHandle */
    EXEC_GRAPHICS,          /* mapped resources */
    EXEC_MULTICAST,
    EXEC_KINDS
} exec_kind;

/* What names memory: addresses, arrays and other objects, handles of physical memory, devices. */
typedef enum exec_key_space { EXEC_ADDRESSES = 0, EXEC_OBJECTS, EXEC_HANDLES, EXEC_DEVICE_NUMBERS } exec_key_space;

typedef enum exec_kind_end {
    EXEC_ENDS_WITH_CONTEXT = 0, /* the one that was current when it was made */
    EXEC_MAY_END_WITH_CONTEXT,  /* when a context ends, the driver is asked whether the memory is still there */
    EXEC_OUTLIVES_CONTEXT,
} exec_kind_end;

typedef struct exec_kind_row {
    const char *name; /* in the report */
    exec_key_space space;
    exec_kind_end end;
    bool is_asked_for; /* by exec_passed_has: it is entered even if there is no budget and no report */
} exec_kind_row;
extern const exec_kind_row exec_kind_rows[EXEC_KINDS]; /* kinds.c */

typedef struct exec_passed_key {
    uint64_t value;
    uint64_t space; /* exec_key_space */
} exec_passed_key;

/* Memory that the driver gave. */
typedef struct exec_passed_facts {
    exec_passed_key key;
    exec_kind kind;
    uint32_t holders;
    size_t bytes;
    strata_budget_account *account; /* that is charged with it; NULL: no budget counts it */
    unsigned stack;                 /* number of the runtime that has the account */
    exec_device *device;            /* NULL: of none */
    CUcontext context;              /* current when it was made; NULL: not known, or it outlives its context */
    strata_tag library;             /* that asked for it; 0: not known, or no report was asked for */
} exec_passed_facts;

/* A request that is passed on, from before the driver's call until after it. */
typedef struct exec_charge {
    exec_device *device;            /* NULL: of none */
    strata_budget_account *account; /* that is charged; NULL: no budget counts it */
    unsigned stack;                 /* number of the runtime that has the account */
    exec_kind kind;
    size_t bytes;
    CUcontext context;  /* the current one */
    const void *caller; /* the hook's return address */
} exec_charge;

/* As exec_charge_begin, for a device with a budget. `there`: as in exec_here. */
CUresult exec_charge_budget(exec_charge *charge, const exec_device *there);

/* Charges the budget. CUDA_ERROR_OUT_OF_MEMORY: it does not fit. After a success exec_charge_end follows, once. */
static inline CUresult exec_charge_begin(const exec_here *here, exec_kind kind, size_t bytes, const void *caller,
                                         exec_charge *charge)
{
    *charge =
        (exec_charge){.device = here->device, .kind = kind, .bytes = bytes, .context = here->context, .caller = caller};
    if (here->refused)
        return CUDA_ERROR_NOT_PERMITTED;
    return here->device && here->device->account && bytes ? exec_charge_budget(charge, here->there) : CUDA_SUCCESS;
}

/* Takes the result of the driver's call, and returns it. The charge stays with the memory of that key, or is given back
 * after a failure. */
CUresult exec_charge_end(exec_charge *charge, CUresult result, uint64_t key);

/* Whether memory was passed on with this key. */
bool exec_passed_has(exec_kind kind, uint64_t key);

/* Adds a holder to physical memory, which ends with its last one. Does nothing for an unknown key. */
void exec_passed_hold(uint64_t key);

/* Counts memory without a charge. Memory that was imported or mapped before under this key gets one more holder. */
void exec_passed_note(exec_kind kind, uint64_t key, size_t bytes, const void *caller);

/* Raises the size of memory that was counted, when at least so much of it is known. Does nothing for an unknown key. */
void exec_passed_grow(exec_kind kind, uint64_t key, size_t bytes);

/* Counts a call of that kind, without memory of its own. */
void exec_passed_called(exec_kind kind, const void *caller);

/* Sets how much the driver holds for a device in all. Charged if it fits into the budget, else only counted. */
void exec_passed_set(exec_device *device, exec_kind kind, size_t bytes);

/* Moves charges to the budget of a device's former stack to that of its new one. */
void exec_passed_move(exec_device *device);

/* Drops what was made in a context that has ended, except physical memory. Of pools' and host memory, drops what the
 * driver no longer knows. */
void exec_passed_forget(CUcontext context);

/* Drops one holder of the memory, which ends with its last one. Linear, pitched, managed and pooled memory share their
 * keys. */
void exec_passed_drop(exec_kind kind, uint64_t key);

/* As exec_passed_drop, around the driver's call that ends the memory: as soon as that returns, another thread may have
 * the key for other memory. Begin takes the memory out. End takes and returns the call's result, and puts the memory
 * back after a failure. */
typedef struct exec_release {
    exec_passed_facts facts; /* without holders: none was known */
} exec_release;
void exec_release_begin(exec_kind kind, uint64_t key, exec_release *release);
CUresult exec_release_end(const exec_release *release, CUresult result);

typedef struct exec_passed_sums {
    uint64_t calls, live, peak;
} exec_passed_sums;

/* Reads the sums of a library, or with 0 those of all. */
exec_passed_sums exec_passed_read(exec_kind kind, strata_tag library);

/* Emits the kinds that were passed on, each by library (passed_report.c). */
void exec_passed_emit(strata_emitter *emitter);

/* Gives the stack's free memory back to the device, for a request that the driver has refused. False: there was none.
 */
bool exec_make_room(const exec_here *here);

/* ---- what the program is told (truth.c) ---- */

/* The size of the device that the program is told: the limit of its stack's budget, else (also with `device` NULL: no
 * stack yet) the budget that the launcher was given. 0: there is none. */
size_t exec_told_size(const exec_device *device, size_t total);

static inline size_t exec_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- pools and graphs (pools.c, graphs.c) ---- */

/* Whether the program has set a pool of its own for the device. Any thread. */
bool exec_has_own_pool(int ordinal);

/* Whether a pool is the device's default one. */
bool exec_pool_is_default(int ordinal, CUmemoryPool pool);

/* Returns the device that is charged with a pool's memory, which is requested on a stream. */
exec_here exec_pool_owner(CUmemoryPool pool, CUstream stream);

/* Takes and returns the result of a captured request for memory; after a success, counts the node of a graph that it
 * made. */
CUresult exec_graph_memory_captured(CUresult result, const void *caller);

/* ---- other processes (ipc.c) ---- */

/* Withdraws the offer of a block that is about to be freed; NULL: there is none. After the free, exec_ipc_freed ends
 * the offer, or puts it back if the free failed. */
typedef struct exec_offer exec_offer;
exec_offer *exec_ipc_take_offer(CUdeviceptr address);
void exec_ipc_freed(exec_offer *taken, bool freed);

/* ---- callers (callers.c) ---- */

/* A tag with the name of the library that the address is in. */
strata_tag exec_caller_tag(const void *return_address);

/* As above, of the library that a walk of the calling thread's stack finds. */
strata_tag exec_caller_walk(void);

/* Calls visit for each tag that was given out. */
void exec_caller_visit(void (*visit)(strata_tag tag, void *data), void *data);

#define EXEC_CALLER __builtin_return_address(0)

/* The number of the calling thread's stack, if stacks were asked for; else 0. */
uint32_t exec_caller_stack(void);

/* ---- what was refused (refusals.c, wrong_frees.c) ---- */

/* The statistics layer of a device's stack. NULL: it has none. */
strata_resource *exec_statistics_of(const exec_device *device);

/* Notes a request that has failed with the status; its error is the thread's last one. `kind`: the name of what was
 * asked for; NULL: memory of the stack. Any thread. */
void exec_refusal_note(const exec_device *device, const char *kind, size_t bytes, strata_status status);
void exec_refusals_emit(strata_emitter *emitter);

typedef enum exec_wrong_free {
    EXEC_FREE_DEAD = 0, /* it was free already, or is no block of the stack's memory */
    EXEC_FREE_INSIDE,   /* not the begin of a block */
    EXEC_FREE_FOREIGN,  /* of neither the stack nor the driver */
} exec_wrong_free;

void exec_wrong_free_note(exec_wrong_free kind, CUdeviceptr address);
void exec_wrong_frees_emit(strata_emitter *emitter);

/* ---- the programs' own caches (caches.c) ---- */

/* Begins to ask; called once the driver is open, if a report was asked for. */
void exec_caches_start(void);

/* Asks the libraries what they hold now, and waits a little for the answer. Not called from the program's threads. */
void exec_caches_ask(void);

/* Asks without a wait, each second; called by live.c's thread at each of its looks. */
void exec_caches_tick(void);

void exec_caches_emit(strata_emitter *emitter);

/* ---- report (report.c, report_stacks.c) ---- */

void exec_report_write(exec_report_form form, bool at_end, strata_write_callback write_text, void *data);

/* Emit what each call stack holds and held, and at the end what is still live. */
void exec_report_stacks(strata_emitter *emitter, strata_resource *statistics);
void exec_report_leaks(strata_emitter *emitter, strata_resource *statistics);

/* ---- stacks whose context has ended (ended.c) ---- */

typedef struct exec_ended_stack exec_ended_stack;

/* Notes what the report says of a stack whose context has ended, before its blocks are dropped. Inside of device.c's
 * lock. */
void exec_ended_note(const exec_device *device);

/* Emits ended stacks as elements of the report's list of devices, the newest first; returns the first one that is left
 * out, or NULL. exec_ended_emit_rest emits what is left out as one object behind the list. */
const exec_ended_stack *exec_ended_emit(strata_emitter *emitter);
void exec_ended_emit_rest(strata_emitter *emitter, const exec_ended_stack *rest);

/* At the start: duplicates the descriptor that the report will go to, standard error or the one that --output names. */
void exec_report_keep_output(void);

/* Write the report in the form, and to the place, that the settings say; the last one also says what is still live. */
void exec_report_now(void);
void exec_report_last(void);

/* Answers SIGUSR1 and `strata top` from now on (live.c). Once. */
void exec_live_start(void);

#endif
