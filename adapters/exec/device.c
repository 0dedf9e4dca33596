/* A runtime for each device whose memory the program asks for. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/stack/neighbours.h"
#include "core/streams/device.h"
#include "driver/driver.h"

#include <strata/info.h>
#include <strata/stack.h>

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static exec_device devices[EXEC_DEVICES]; /* their mutexes of zeros are unlocked ones, by the ABI of glibc and musl */
static _Atomic size_t device_bound;       /* above it no device was ever ready; only grows; any thread */
static _Atomic uint64_t changes;          /* of devices' states, and ends of contexts; any thread */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER; /* around a change of a device's state */

CUresult exec_result_of(strata_status status)
{
    const CUresult driver = strata_last_error()->driver_code;
    switch (status) {
    case STRATA_SUCCESS: /* these, whatever the driver answered */
    case STRATA_ERROR_OUT_OF_MEMORY:
    case STRATA_ERROR_OUT_OF_BUDGET:
    case STRATA_ERROR_OUT_OF_HOST_MEMORY:
    case STRATA_ERROR_DEADLOCK:
    case STRATA_ERROR_SHUT_DOWN:
    case STRATA_ERROR_FORKED:
    case STRATA_ERROR_STREAM_CAPTURE:
    case STRATA_ERROR_STREAM_MISUSE:
    case STRATA_ERROR_DEVICE_RESET:
        return strata_status_to_cuda(status);
    default:
        return driver != CUDA_SUCCESS ? driver : strata_status_to_cuda(status);
    }
}

/* ---- the driver ---- */

/* Finds the file of the program's driver: the loaded libcuda, else the library that a look-up of the program has led
 * to. That comes second, since a library in front of the driver may have functions of these names, too. */
static bool find_driver(char path[PATH_MAX])
{
    Dl_info where;
    struct link_map *object = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), *address = NULL;
    const char *name = library && dlinfo(library, RTLD_DI_LINKMAP, &object) == 0 ? object->l_name : NULL;
    if (!name)
        address = exec_hook_real(EXEC_HOOK_cuGetProcAddress_v2);
    if (address && dladdr(address, &where))
        name = where.dli_fname;
    const bool found = name && strata_driver_path_from_start(name, path);
    if (library)
        dlclose(library);
    return found;
}

/* Says once why memory will not come from a stack. */
static void say_closed(const strata_driver_failure *failure)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        exec_say("the program's driver cannot be used: %s%s",
                 failure->message[0] ? failure->message : "it was not found",
                 exec_settings_now.fail_closed ? "; memory is refused (--fail-closed)"
                                               : "; the program goes on without a stack");
}

static void (*when_open)(void); /* written before other threads are there */
static pthread_once_t opened = PTHREAD_ONCE_INIT;

void exec_on_driver_open(void (*call)(void))
{
    when_open = call;
    if (strata_driver_is_open())
        pthread_once(&opened, call);
}

static _Atomic bool early; /* the last look found that the program has not called cuInit; any thread */

/* Whether the program has called cuInit. Before that the driver refuses the program's calls, and no hook initializes
 * it. */
static bool program_has_begun(void)
{
    size_t bytes;
    const bool begun = EXEC_CALL(cuDeviceTotalMem_v2, &bytes, 0) != CUDA_ERROR_NOT_INITIALIZED;
    atomic_store_explicit(&early, !begun, memory_order_relaxed);
    return begun;
}

/* Not inlined into exec_open_driver: the large locals would cost more than the rest of a hook. */
static __attribute__((noinline)) bool open_driver(void)
{
    strata_driver_failure failure = {0};
    char path[PATH_MAX];
    if (!exec_is_wanted() || strata_driver_state_now() != STRATA_DRIVER_CLOSED || !program_has_begun())
        return strata_driver_is_open(); /* another thread may have come first */
    exec_read_settings();
    if (!find_driver(path) || !strata_driver_fix_choice(path) || !strata_driver_load(&failure)) {
        if (!exec_is_forked())
            say_closed(&failure);
        return false;
    }
    if (when_open)
        pthread_once(&opened, when_open);
    return true;
}

bool exec_open_driver(void)
{
    return strata_driver_is_open() || open_driver();
}

/* ---- starting ---- */

static bool find_context(exec_device *device)
{
    CUcontext context;
    if (strata_cu.DevicePrimaryCtxRetain(&context, device->ordinal) != CUDA_SUCCESS)
        return false;
    device->context = context;
    strata_cu.DevicePrimaryCtxRelease(device->ordinal); /* the runtime has it, too */
    return true;
}

static bool has_layer(const exec_device *device, const char *name)
{
    return strata_stack_layer(strata_runtime_stack(device->runtime), name, 0) != NULL;
}

static bool outlives_context(const strata_stack *stack)
{
    bool outlives = false;
    for (size_t i = 0; i < stack->count; i++)
        outlives |= stack->layers[i]->ops->outlives_context;
    return outlives;
}

/* Whether a layer that cuts blocks out of those below, and keeps what is free, stands above a budget. */
static bool keeps_free_above_a_budget(const strata_stack *stack)
{
    for (size_t i = 0; i < stack->internal_owner_count; i++) {
        const strata_resource *owner = stack->internal_owners[i], *below = owner;
        while ((below = strata_resource_next_below(owner, below)))
            if (strcmp(below->ops->name, "budget") == 0)
                return true;
    }
    return false;
}

/* Keeps what the hooks need to know of the stack. A guard checks a block when it is freed, and a log records frees in
 * their order. A guard fills a new block on the request's stream, also in memory that is not ordered by streams. */
static void learn_stack(exec_device *device)
{
    strata_resource *budget = strata_stack_layer(strata_runtime_stack(device->runtime), "budget", 0);
    const bool guarded = has_layer(device, "guard");
    device->is_guarded = guarded;
    device->budget_counts_free = keeps_free_above_a_budget(strata_runtime_stack(device->runtime));
    device->memory_outlives = outlives_context(strata_runtime_stack(device->runtime));
    device->hides_blocks = guarded || strata_stack_may_cut_blocks(strata_runtime_stack(device->runtime));
    device->account = budget ? strata_budget_base(budget) : NULL;
    device->memory_is_ordered =
        guarded || has_layer(device, "async") || !(has_layer(device, "pool") || has_layer(device, "direct"));
    device->completes_late = device->memory_is_ordered || has_layer(device, "direct") || has_layer(device, "binning");
    device->frees_at_once = guarded || has_layer(device, "logging");
}

/* Initializes the lock so that waiting writers come first: a program may ask for memory all the time. */
static void make_ending(exec_device *device)
{
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&device->ending, &kind);
    pthread_rwlockattr_destroy(&kind);
}

static void (*when_built)(exec_device *device); /* written before other threads are there */

void exec_on_stack_built(void (*call)(exec_device *device))
{
    when_built = call;
}

/* A later stack of the process is tried with the second text, too: other devices' stacks, and those of before a reset,
 * keep their log's file open. Those runtimes stay, since a thread may still use them. */
static bool create_runtime(exec_device *device, bool is_first)
{
    strata_runtime *runtime;
    strata_runtime_config config = {
        .size = sizeof config, .device = device->ordinal, .stack_text = exec_settings_now.stack};
    strata_status status = strata_runtime_create(&config, &runtime);
    if (status != STRATA_SUCCESS && !is_first && exec_settings_now.stack_again[0]) {
        config.stack_text = exec_settings_now.stack_again;
        status = strata_runtime_create(&config, &runtime);
    }
    if (status == STRATA_SUCCESS)
        device->runtime = runtime;
    return status == STRATA_SUCCESS;
}

/* As create_runtime, and again as often as another thread resets the device in the middle, since a device without a
 * stack stays without one. TRIES: of a device that stays lost. */
static bool create_runtime_between_resets(exec_device *device, bool is_first)
{
    enum { TRIES = 16 };
    const strata_device *now = strata_device_if_open(device->ordinal), *before = NULL;
    bool created = create_runtime(device, is_first);
    for (int i = 0; i < TRIES && !created; i++) {
        before = now;
        now = strata_device_if_open(device->ordinal);
        if (!now || (now == before && !strata_device_is_lost(now)))
            return false;
        if (now != before)
            i = 0;
        created = create_runtime(device, is_first);
    }
    return created;
}

/* ---- building ---- */

static bool build(exec_device *device)
{
    static unsigned builds; /* guarded by `starting` */
    if (!atomic_load(&device->number))
        make_ending(device);
    if (!create_runtime_between_resets(device, !builds) || !find_context(device)) {
        exec_say("the stack \"%s\" of device %d could not be built: %s%s", exec_settings_now.stack, device->ordinal,
                 strata_last_error()->message,
                 exec_settings_now.fail_closed ? "; memory is refused (--fail-closed)"
                                               : "; the program goes on without it");
        return false;
    }
    learn_stack(device);
    exec_set_aside_begin(device);
    atomic_store(&device->number, ++builds); /* behind the budget of that stack */
    if (when_built)
        when_built(device);
    return true;
}

static exec_device_state start(exec_device *device, int ordinal)
{
    const int cancel = strata_cancel_forbid(); /* a driver may be a place to end a thread at, the lock is none */
    pthread_mutex_lock(&starting);
    exec_device_state state = (exec_device_state)atomic_load(&device->state);
    if (state == EXEC_DEVICE_NONE) {
        if (device->ordinal != ordinal)
            device->ordinal = ordinal;
        state = build(device) ? EXEC_DEVICE_READY : EXEC_DEVICE_FAILED;
        atomic_store_explicit(&device->state, state, memory_order_release);
        if (state == EXEC_DEVICE_READY && atomic_load(&device_bound) <= (size_t)ordinal)
            atomic_store(&device_bound, (size_t)ordinal + 1);
        atomic_fetch_add(&changes, 1);
    }
    pthread_mutex_unlock(&starting);
    strata_cancel_restore(cancel);
    return state;
}

bool exec_is_primary(CUcontext context, CUdevice ordinal)
{
    unsigned flags;
    int active = 0;
    CUcontext primary = NULL;
    if (!strata_cu.DevicePrimaryCtxGetState ||
        strata_cu.DevicePrimaryCtxGetState(ordinal, &flags, &active) != CUDA_SUCCESS || !active ||
        strata_cu.DevicePrimaryCtxRetain(&primary, ordinal) != CUDA_SUCCESS)
        return false;
    strata_cu.DevicePrimaryCtxRelease(ordinal);
    return primary == context;
}

static exec_device *ready_with(CUcontext context)
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));)
        if (device->context == context)
            return device;
    return NULL;
}

static exec_here look_up(CUcontext context)
{
    CUdevice ordinal;
    if (!strata_cu.CtxGetDevice || strata_cu.CtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 ||
        ordinal >= EXEC_DEVICES)
        return (exec_here){0};
    const bool primary = exec_is_primary(context, ordinal);
    exec_device *device = &devices[ordinal];
    if (!primary && !exec_settings_now.charged && !exec_device_at((size_t)ordinal))
        return (exec_here){0}; /* a stack would hold a second context for nothing */
    if (start(device, ordinal) != EXEC_DEVICE_READY)
        return (exec_here){.refused = exec_settings_now.fail_closed};
    return (exec_here){.device = device, .primary = primary};
}

/* The driver is to refuse a call that names another device, and no stack is built for it. */
static bool has_driver_device(int ordinal)
{
    CUdevice device;
    return ordinal >= 0 && ordinal < EXEC_DEVICES && exec_open_driver() &&
           strata_cu.DeviceGet(&device, ordinal) == CUDA_SUCCESS;
}

exec_device *exec_device_start(int ordinal)
{
    return has_driver_device(ordinal) && start(&devices[ordinal], ordinal) == EXEC_DEVICE_READY ? &devices[ordinal]
                                                                                                : NULL;
}

exec_device *exec_device_of_memory(const exec_here *here, int ordinal)
{
    if (here->device && here->device->ordinal == ordinal)
        return here->device;
    if (here->device || exec_settings_now.charged)
        return exec_device_start(ordinal);
    return strata_driver_is_open() && ordinal >= 0 && ordinal < EXEC_DEVICES ? exec_device_at((size_t)ordinal) : NULL;
}

exec_device *exec_device_if_ready(void)
{
    CUdevice ordinal;
    return strata_driver_is_open() && strata_cu.CtxGetDevice(&ordinal) == CUDA_SUCCESS && ordinal >= 0 &&
                   ordinal < EXEC_DEVICES
               ? exec_device_at((size_t)ordinal)
               : NULL;
}

int exec_ordinal_of(CUcontext context)
{
    CUcontext before = NULL;
    CUdevice ordinal;
    if (!exec_open_driver() || !strata_cu.CtxGetDevice || strata_cu.CtxGetCurrent(&before) != CUDA_SUCCESS ||
        strata_cu.CtxSetCurrent(context) != CUDA_SUCCESS)
        return -1;
    const bool known = strata_cu.CtxGetDevice(&ordinal) == CUDA_SUCCESS && ordinal >= 0 && ordinal < EXEC_DEVICES;
    strata_cu.CtxSetCurrent(before);
    return known ? ordinal : -1;
}

exec_device *exec_device_of(CUcontext context)
{
    return exec_device_start(exec_ordinal_of(context));
}

/* What exec_device_here returned last in this thread; good until `changes` moves. */
static _Thread_local struct {
    CUcontext context;
    unsigned long long id; /* of the context, if it is the stack's; 0: it is not, or the driver gives none */
    uint64_t changes;
    exec_here here;
} last;

/* Before the program's cuInit, and once it has ended, the driver refuses all by itself. */
static exec_here without_driver(void)
{
    return (exec_here){.refused = !exec_is_forked() && exec_is_wanted() && exec_settings_now.fail_closed &&
                                  strata_driver_state_now() != STRATA_DRIVER_SHUT_DOWN &&
                                  !atomic_load_explicit(&early, memory_order_relaxed)};
}

/* Returns the current context's id if it is the context of the device's stack, and not a later one with its handle;
 * else 0. */
static unsigned long long id_of_stacks_context(const exec_here *here)
{
    unsigned long long id = 0;
    if (!here->primary || !strata_cu.CtxGetId || strata_cu.CtxGetId(NULL, &id) != CUDA_SUCCESS)
        return 0;
    return id == strata_runtime_stack(here->device->runtime)->device->context_id ? id : 0;
}

/* `now`: the value of `changes` before the look-up, so that the next call sees what has changed since. */
static __attribute__((noinline)) exec_here look_anew(CUcontext context, uint64_t now)
{
    exec_device *device = ready_with(context);
    exec_here here = device ? (exec_here){.device = device, .primary = true} : look_up(context);
    here.context = context;
    last.context = context;
    last.id = id_of_stacks_context(&here);
    last.changes = now;
    last.here = here;
    return here;
}

exec_here exec_device_here(void)
{
    CUcontext context = NULL;
    if (!exec_open_driver())
        return without_driver();
    if (strata_cu.CtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return (exec_here){0};
    const uint64_t now = atomic_load_explicit(&changes, memory_order_acquire);
    return last.context == context && last.changes == now ? last.here : look_anew(context, now);
}

/* By the context's id, which is given out once, while a handle may be given out again. Not where contexts beside
 * primary ones are: that a green context has an id of its own is not documented. */
exec_here exec_device_here_now(void)
{
    unsigned long long id = 0;
    if (!exec_open_driver())
        return without_driver();
    const uint64_t now = atomic_load_explicit(&changes, memory_order_acquire);
    if (!last.id || last.changes != now || exec_contexts_any() || strata_cu.CtxGetId(NULL, &id) != CUDA_SUCCESS ||
        id != last.id)
        return exec_device_here();
    exec_here here = last.here;
    here.there = here.device;
    return here;
}

static bool has_several_devices(void)
{
    static _Atomic int count; /* 0: not asked for yet */
    int known = atomic_load_explicit(&count, memory_order_relaxed);
    if (!known && strata_cu.DeviceGetCount(&known) == CUDA_SUCCESS)
        atomic_store_explicit(&count, known, memory_order_relaxed);
    return known > 1;
}

exec_here exec_device_of_stream(CUstream stream)
{
    exec_here here = exec_device_here_now();
    CUcontext context, before = NULL;
    CUdevice current = -1, own = -1;
    const bool is_clear = here.context && !has_several_devices(); /* without a current context the stream alone tells */
    if (exec_is_default(stream) || !strata_driver_is_open() || is_clear || !exec_context_of_stream(stream, &context) ||
        strata_cu.CtxGetCurrent(&before) != CUDA_SUCCESS || context == before)
        return here;
    if (before)
        strata_cu.CtxGetDevice(&current);
    if (strata_cu.CtxSetCurrent(context) != CUDA_SUCCESS)
        return here;
    if (strata_cu.CtxGetDevice(&own) == CUDA_SUCCESS && own != current)
        here = exec_device_here();
    strata_cu.CtxSetCurrent(before);
    return here;
}

void exec_device_context_ended(void)
{
    atomic_fetch_add(&changes, 1);
}

size_t exec_device_bound(void)
{
    return atomic_load_explicit(&device_bound, memory_order_acquire);
}

exec_device *exec_device_at(size_t i)
{
    const int state = atomic_load_explicit(&devices[i].state, memory_order_acquire);
    return state == EXEC_DEVICE_READY && !exec_is_forked() ? &devices[i] : NULL;
}

exec_device *exec_device_next(size_t *i)
{
    exec_device *device = NULL;
    while (!device && *i < exec_device_bound())
        device = exec_device_at((*i)++);
    return device;
}

void exec_device_has_block(exec_device *device, const strata_block *block)
{
    enum { PIECE = 2 << 20 }; /* what is mapped around it */
    const CUdeviceptr begin = block->address & ~(CUdeviceptr)(PIECE - 1);
    const CUdeviceptr end = (block->address + block->bytes + PIECE - 1) & ~(CUdeviceptr)(PIECE - 1);
    CUdeviceptr lowest = atomic_load_explicit(&device->lowest, memory_order_relaxed);
    CUdeviceptr beyond = atomic_load_explicit(&device->beyond, memory_order_relaxed);
    while ((!lowest || begin < lowest) && !atomic_compare_exchange_weak(&device->lowest, &lowest, begin))
        ;
    while (end > beyond && !atomic_compare_exchange_weak(&device->beyond, &beyond, end))
        ;
}

/* Whether a block of the device may have the address. Most addresses that are asked for are foreign, and a search that
 * fails is slow. */
static bool may_have(exec_device *device, CUdeviceptr address)
{
    return address >= atomic_load_explicit(&device->lowest, memory_order_relaxed) &&
           address < atomic_load_explicit(&device->beyond, memory_order_relaxed);
}

bool exec_device_may_have(CUdeviceptr address)
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));)
        if (may_have(device, address))
            return true;
    return false;
}

bool exec_device_hides(CUdeviceptr address)
{
    exec_device *device;
    for (size_t i = 0; (device = exec_device_next(&i));)
        if (device->hides_blocks && may_have(device, address) &&
            strata_table_holds(strata_runtime_stack(device->runtime)->head.table, address))
            return true;
    return false;
}

exec_device *exec_find_block(CUdeviceptr address, strata_block *block)
{
    exec_device *device;
    if (!strata_driver_is_open())
        return NULL;
    for (size_t i = 0; (device = exec_device_next(&i));) {
        if (!may_have(device, address))
            continue;
        strata_error_suppress_begin();
        const strata_status status = strata_runtime_find(device->runtime, address, block);
        strata_error_suppress_end(false);
        if (status == STRATA_SUCCESS)
            return device;
    }
    return NULL;
}

/* ---- the end of a context ---- */

static void drop_block(const strata_block *block, void *runtime)
{
    exec_ipc_freed(exec_ipc_take_offer(block->address), true); /* another block may have the address */
    strata_runtime_deallocate_on(runtime, block, CU_STREAM_LEGACY);
}

void exec_device_mark_reset(int ordinal, bool begins)
{
    if (ordinal >= 0 && ordinal < EXEC_DEVICES)
        atomic_fetch_add(&devices[ordinal].resets, begins ? 1 : -1u);
}

static bool (*look_for_reset)(int ordinal); /* written before other threads are there */

void exec_on_reset_met(bool (*look)(int ordinal))
{
    look_for_reset = look;
}

bool exec_device_has_its_context(const exec_device *device)
{
    return strata_device_has_its_context(strata_runtime_stack(device->runtime)->device);
}

void exec_device_meet_reset(int ordinal)
{
    const exec_device *device = exec_device_at((size_t)ordinal);
    if (device && look_for_reset && !exec_device_has_its_context(device))
        (void)look_for_reset(ordinal);
}

static strata_device *own_device(const exec_device *device)
{
    return strata_runtime_stack(device->runtime)->device;
}

void exec_device_await_ended(const exec_device *device)
{
    while (strata_device_is_ending(own_device(device)))
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* A request that gave up for a call which is about to end the context does not come back before it. */
static void read_lock(exec_device *device)
{
    pthread_rwlock_rdlock(&device->ending);
    while (strata_device_is_ending(own_device(device))) {
        pthread_rwlock_unlock(&device->ending);
        exec_device_await_ended(device);
        pthread_rwlock_rdlock(&device->ending);
    }
}

bool exec_device_enter(exec_device *device)
{
    if (!device->is_guarded)
        return true;
    read_lock(device);
    if (exec_device_has_its_context(device))
        return true;
    pthread_rwlock_unlock(&device->ending);
    return false;
}

void exec_device_leave(exec_device *device)
{
    if (device->is_guarded)
        pthread_rwlock_unlock(&device->ending);
}

exec_ending exec_device_end_begin(exec_device *device)
{
    exec_ending ending = {.device = device,
                          .marked = device && device->is_guarded ? own_device(device) : NULL,
                          .cancel = strata_cancel_forbid()};
    if (ending.marked)
        strata_device_mark_ending(ending.marked, true);
    if (device)
        pthread_rwlock_wrlock(&device->ending);
    return ending;
}

void exec_device_end_over(const exec_ending *ending)
{
    if (ending->marked)
        strata_device_mark_ending(ending->marked, false);
    if (ending->device)
        pthread_rwlock_unlock(&ending->device->ending);
    strata_cancel_restore(ending->cancel);
}

/* False: another thread has found the reset before, and built the stack of the new context. */
static bool is_of_former_context(const exec_device *device)
{
    const strata_device *own = strata_runtime_stack(device->runtime)->device;
    return strata_device_is_lost(own) || !own->context_id;
}

/* Zeroes what counts from the begin of a stack. Under `starting`. */
static void begin_anew(exec_device *device)
{
    atomic_store(&device->live, 0);
    atomic_store(&device->most_live, 0);
    atomic_store(&device->used_high, 0);
    atomic_store(&device->reserved_then, 0);
    atomic_store(&device->peak_then, 0);
    pthread_mutex_lock(&device->publishing);
    device->event = device->last_work = NULL;
    atomic_store(&device->published, atomic_load(&device->frees));
    pthread_mutex_unlock(&device->publishing);
}

/* Drops the blocks, which went with the context. The runtime stays, unused: other threads may be in it, and charges may
 * be its budget's. A thread that finds the device without a stack may make streams and memory of the new context, with
 * handles of the former one: `forget` comes before that. */
static bool give_up(exec_device *device, void (*forget)(exec_device *device))
{
    const int cancel = strata_cancel_forbid(); /* as above */
    pthread_mutex_lock(&starting);
    const bool gives = exec_device_at((size_t)device->ordinal) && is_of_former_context(device);
    if (gives) {
        forget(device);
        exec_set_aside_end(device);
        begin_anew(device);
        atomic_store(&device->state, EXEC_DEVICE_NONE);
        atomic_fetch_add(&changes, 1);
        strata_stack_visit_blocks(strata_runtime_stack(device->runtime), drop_block, device->runtime);
        strata_neighbours_settle_lost(device->ordinal);
    }
    pthread_mutex_unlock(&starting);
    strata_cancel_restore(cancel);
    return gives;
}

bool exec_device_give_up(int ordinal, void (*forget)(exec_device *device))
{
    exec_device *device = ordinal >= 0 && ordinal < EXEC_DEVICES ? exec_device_at((size_t)ordinal) : NULL;
    if (!device)
        return false;
    strata_error_suppress_begin();
    strata_device_check(ordinal);
    const bool gave = give_up(device, forget);
    strata_error_suppress_end(false);
    return gave;
}
