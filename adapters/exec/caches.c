/* What the libraries of a Python program keep for themselves: PyTorch, CuPy and JAX take memory from the driver in
 * large pieces and give it out again. The stack sees what they hold; what they use of it they alone know.
 *
 * They are asked in the interpreter's main thread, by a pending call of the interpreter (Py_AddPendingCall, which any
 * thread may call without its lock), each second, at `strata top` and SIGUSR1, and at the interpreter's end by atexit.
 * Only functions of C are called, which only read; no line of Python runs, so that a program that traces or compiles
 * what runs sees nothing. (If the program has not imported atexit, it is, untraced.) A main thread that stays in one
 * call for long answers late.
 *
 * PyTorch and JAX keep their peaks; of CuPy the largest answer is kept. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_CACHES = 32, MOST_DEVICES = 64, ANSWER_WITHIN = 300 /* ms */, TICKS = 5, UNKNOWN = -1 };

/* ---- the interpreter ---- */

typedef struct object object; /* PyObject */

/* PyMethodDef */
typedef struct method {
    const char *name;
    object *(*call)(object *self, object *arguments);
    int flags;
    const char *text;
} method;

/* Of the stable interface, but for add_pending, which is older than that. Constant once they are found. */
static struct {
    int (*is_initialized)(void);
    int (*add_pending)(int (*call)(void *data), void *data);
    object *(*modules)(void);
    object *(*import)(const char *name);
    object *(*item)(object *dictionary, const char *key); /* borrowed */
    object *(*attribute)(object *of, const char *name);
    object *(*call_method)(object *of, const char *name, const char *format, ...);
    object *(*new_function)(method *definition, object *self, object *module);
    object *(*values)(object *dictionary);
    object *(*at)(object *sequence, ssize_t i);
    long long (*number)(object *of);
    void (*hold)(object *of);
    void (*release)(object *of);
    void (*forget_error)(void);
    object *none;
    void *(*thread_state)(void); /* of 3.11 and later, as these: NULL before */
    void (*stop_tracing)(void *thread_state);
    void (*go_on_tracing)(void *thread_state);
} python;

static void find_optional(const char *name, void *field)
{
    void *found = exec_loader_dlsym(RTLD_DEFAULT, name);
    memcpy(field, &found, sizeof found);
}

static bool find_functions(void)
{
    const struct {
        const char *name;
        void *field;
    } functions[] = {
        {"Py_IsInitialized", &python.is_initialized},
        {"Py_AddPendingCall", &python.add_pending},
        {"PyImport_GetModuleDict", &python.modules},
        {"PyImport_ImportModule", &python.import},
        {"PyDict_GetItemString", &python.item},
        {"PyObject_GetAttrString", &python.attribute},
        {"PyObject_CallMethod", &python.call_method},
        {"PyCFunction_NewEx", &python.new_function},
        {"PyDict_Values", &python.values},
        {"PySequence_GetItem", &python.at},
        {"PyLong_AsLongLong", &python.number},
        {"Py_IncRef", &python.hold},
        {"Py_DecRef", &python.release},
        {"PyErr_Clear", &python.forget_error},
        {"_Py_NoneStruct", &python.none},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = exec_loader_dlsym(RTLD_DEFAULT, functions[i].name);
        if (!found)
            return false;
        memcpy(functions[i].field, &found, sizeof found);
    }
    find_optional("PyThreadState_Get", &python.thread_state);
    find_optional("PyThreadState_EnterTracing", &python.stop_tracing);
    find_optional("PyThreadState_LeaveTracing", &python.go_on_tracing);
    return true;
}

/* ---- what was answered ---- */

/* In bytes; UNKNOWN: the library does not say. */
typedef struct cache {
    const char *library;
    int device;
    bool keeps_peaks;
    int64_t held, used, held_peak, used_peak, unused_peak;
} cache;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered_now = PTHREAD_COND_INITIALIZER;
static cache caches[MOST_CACHES]; /* guarded by the lock, as all of these */
static size_t cache_count;
static bool outstanding;      /* a pending call is queued */
static bool registered;       /* with atexit: there is an end to wait for */
static bool ended;            /* the interpreter ends: it is not called any more */
static uint64_t answers;      /* so far */
static struct timespec since; /* the latest answer */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void note(const cache *now)
{
    pthread_mutex_lock(&lock);
    cache *entry = caches, *end = caches + cache_count;
    while (entry < end && (strcmp(entry->library, now->library) != 0 || entry->device != now->device))
        entry++;
    if (entry < caches + MOST_CACHES) {
        const cache before = entry == end ? *now : *entry;
        cache_count += entry == end;
        *entry = *now;
        if (!now->keeps_peaks) {
            entry->held_peak = larger(before.held_peak, now->held);
            entry->used_peak = larger(before.used_peak, now->used);
        }
        entry->unused_peak =
            now->held != UNKNOWN && now->used != UNKNOWN ? larger(before.unused_peak, now->held - now->used) : UNKNOWN;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- asking, with the interpreter's lock ---- */

/* A number in a dictionary in dictionaries. */
static int64_t read_number(object *from, const char *const *keys)
{
    for (; from && *keys; keys++)
        from = python.item(from, *keys);
    const long long number = from ? python.number(from) : UNKNOWN;
    python.forget_error();
    return number < 0 ? UNKNOWN : number;
}

static object *find_module(const char *name)
{
    object *modules = python.modules();
    return modules ? python.item(modules, name) : NULL;
}

static void drop(object *held)
{
    if (held)
        python.release(held);
    python.forget_error();
}

/* False: the device has no cache, or CUDA is not in use. */
static bool ask_torch_device(object *torch, int device)
{
    static const char *const used[] = {"allocated_bytes", "all", "current", NULL};
    static const char *const used_peak[] = {"allocated_bytes", "all", "peak", NULL};
    static const char *const held[] = {"reserved_bytes", "all", "current", NULL};
    static const char *const held_peak[] = {"reserved_bytes", "all", "peak", NULL};
    object *statistics = python.call_method(torch, "_cuda_memoryStats", "i", device);
    const cache now = {.library = "PyTorch",
                       .device = device,
                       .keeps_peaks = true,
                       .held = read_number(statistics, held),
                       .used = read_number(statistics, used),
                       .held_peak = read_number(statistics, held_peak),
                       .used_peak = read_number(statistics, used_peak)};
    if (now.held_peak > 0)
        note(&now);
    const bool known = statistics != NULL;
    drop(statistics);
    return known;
}

static void ask_torch(void)
{
    object *torch = find_module("torch._C");
    for (int device = 0; torch && device < MOST_DEVICES && ask_torch_device(torch, device); device++)
        ;
}

static int64_t call_number(object *of, const char *name)
{
    object *answer = of ? python.call_method(of, name, NULL) : NULL;
    const long long number = answer ? python.number(answer) : UNKNOWN;
    drop(answer);
    return number < 0 ? UNKNOWN : number;
}

/* The pool that is in use, of the current device, if the allocator is a pool's. */
static void ask_cupy(void)
{
    object *module = find_module("cupy.cuda.memory");
    object *allocator = module ? python.call_method(module, "get_allocator", NULL) : NULL;
    object *pool = allocator ? python.attribute(allocator, "__self__") : NULL;
    const cache now = {.library = "CuPy",
                       .device = UNKNOWN,
                       .held = call_number(pool, "total_bytes"),
                       .used = call_number(pool, "used_bytes")};
    if (now.held > 0)
        note(&now);
    drop(pool);
    drop(allocator);
}

static void ask_jax_device(object *device)
{
    static const char *const used[] = {"bytes_in_use", NULL}, *const used_peak[] = {"peak_bytes_in_use", NULL};
    static const char *const held[] = {"pool_bytes", NULL}, *const held_peak[] = {"peak_pool_bytes", NULL};
    object *statistics = python.call_method(device, "memory_stats", NULL);
    object *number = python.attribute(device, "id");
    const cache now = {.library = "JAX",
                       .device = number ? (int)python.number(number) : UNKNOWN,
                       .keeps_peaks = true,
                       .held = read_number(statistics, held),
                       .used = read_number(statistics, used),
                       .held_peak = read_number(statistics, held_peak),
                       .used_peak = read_number(statistics, used_peak)};
    if (now.held > 0 || now.used > 0)
        note(&now);
    drop(number);
    drop(statistics);
}

/* The backends that the program has started; none is started for this. */
static void ask_jax(void)
{
    object *bridge = find_module("jax._src.xla_bridge");
    object *backends = bridge ? python.attribute(bridge, "_backends") : NULL;
    object *list = backends ? python.values(backends) : NULL, *backend;
    for (ssize_t b = 0; list && (backend = python.at(list, b)); b++) {
        object *devices = python.call_method(backend, "local_devices", NULL), *device;
        for (ssize_t d = 0; devices && (device = python.at(devices, d)); d++) {
            ask_jax_device(device);
            drop(device);
        }
        drop(devices);
        drop(backend);
    }
    drop(list);
    drop(backends);
}

static void ask_all(void)
{
    ask_torch();
    ask_cupy();
    ask_jax();
    pthread_mutex_lock(&lock);
    answers++;
    clock_gettime(CLOCK_MONOTONIC, &since);
    pthread_cond_broadcast(&answered_now);
    pthread_mutex_unlock(&lock);
}

/* ---- the interpreter's end ---- */

static pid_t owner; /* a forked child is not asked; constant */

static object *answer_last(object *self, object *arguments)
{
    (void)self, (void)arguments;
    if (getpid() == owner) { /* in a child the lock may be held by a thread that is not there */
        ask_all();
        pthread_mutex_lock(&lock);
        ended = true;
        pthread_mutex_unlock(&lock);
    }
    python.hold(python.none);
    return python.none;
}

static object *import_atexit(void)
{
    object *module = find_module("atexit");
    const bool can_stop = python.thread_state && python.stop_tracing && python.go_on_tracing;
    if (module) {
        python.hold(module);
        return module;
    }
    if (can_stop)
        python.stop_tracing(python.thread_state());
    module = python.import("atexit");
    if (can_stop)
        python.go_on_tracing(python.thread_state());
    return module;
}

static bool register_last_answer(void)
{
    enum { NO_ARGUMENTS = 4 };
    static method definition = {"strata_exec_caches", answer_last, NO_ARGUMENTS, NULL};
    object *module = import_atexit();
    object *function = module ? python.new_function(&definition, NULL, NULL) : NULL;
    object *done = function ? python.call_method(module, "register", "O", function) : NULL;
    const bool is_done = done != NULL;
    drop(done);
    drop(function);
    drop(module);
    return is_done;
}

/* ---- pending calls ---- */

static int answer(void *unused)
{
    (void)unused;
    if (getpid() != owner)
        return 0;
    if (!registered)
        registered = register_last_answer(); /* in the main thread alone */
    if (registered)
        ask_all();
    pthread_mutex_lock(&lock);
    outstanding = false;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Under the lock, which the interpreter's end takes before it goes on. The first call is queued before that is known.
 */
static void queue_answer(void)
{
    if (!ended && !outstanding && python.add_pending && python.is_initialized())
        outstanding = python.add_pending(answer, NULL) == 0;
}

void exec_caches_start(void)
{
    owner = getpid();
    pthread_mutex_lock(&lock);
    if (find_functions())
        queue_answer();
    else
        python.add_pending = NULL; /* no Python */
    pthread_mutex_unlock(&lock);
}

void exec_caches_tick(void)
{
    static unsigned ticks; /* live.c's thread's */
    if (!python.add_pending || ++ticks % TICKS)
        return;
    pthread_mutex_lock(&lock);
    queue_answer();
    pthread_mutex_unlock(&lock);
}

void exec_caches_ask(void)
{
    struct timespec until;
    if (!python.add_pending)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ANSWER_WITHIN * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&lock);
    const uint64_t before = answers;
    queue_answer();
    while (!ended && answers == before && pthread_cond_timedwait(&answered_now, &lock, &until) != ETIMEDOUT)
        ;
    pthread_mutex_unlock(&lock);
}

/* ---- reporting ---- */

static void emit_known(strata_emitter *emitter, const char *name, int64_t bytes)
{
    if (bytes == UNKNOWN)
        strata_emit_text(emitter, name, "unknown");
    else
        strata_emit_bytes(emitter, name, (uint64_t)bytes);
}

static void emit_cache(strata_emitter *emitter, const cache *entry)
{
    const bool known = entry->held != UNKNOWN && entry->used != UNKNOWN;
    strata_emit_object_begin(emitter, NULL);
    strata_emit_text(emitter, "library", entry->library);
    if (entry->device != UNKNOWN)
        strata_emit_count(emitter, "device", (uint64_t)entry->device);
    emit_known(emitter, "held", entry->held);
    emit_known(emitter, "used", entry->used);
    emit_known(emitter, "unused", known ? larger(entry->held - entry->used, 0) : UNKNOWN);
    emit_known(emitter, "held_peak", entry->held_peak);
    emit_known(emitter, "used_peak", entry->used_peak);
    emit_known(emitter, "unused_peak_seen", entry->unused_peak);
    strata_emit_text(emitter, "peaks", entry->keeps_peaks ? "kept by the library" : "the largest of its answers");
    strata_emit_object_end(emitter);
}

static uint64_t seconds_since(const struct timespec *then)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)(now.tv_sec - then->tv_sec);
}

void exec_caches_emit(strata_emitter *emitter)
{
    cache read[MOST_CACHES];
    pthread_mutex_lock(&lock);
    const size_t count = cache_count;
    const uint64_t times = answers;
    const struct timespec then = since;
    memcpy(read, caches, count * sizeof read[0]);
    pthread_mutex_unlock(&lock);
    if (!python.add_pending || (times && !count))
        return;
    strata_emit_object_begin(emitter, "caches");
    strata_emit_count(emitter, "answers", times); /* 0: the main thread has not come to Python code */
    if (times)
        strata_emit_count(emitter, "seconds_ago", seconds_since(&then));
    strata_emit_list_begin(emitter, "libraries");
    for (size_t i = 0; i < count; i++)
        emit_cache(emitter, &read[i]);
    strata_emit_list_end(emitter);
    strata_emit_object_end(emitter);
}
